#include "hanji/comm/scatter.h"

#include "hanji/comm/internal/shares.h"
#include "hanji/comm/internal/submit.h"

namespace hanji::comm {
namespace {

struct ScatterBlock {
  int64_t all;    // elements of the wide buffer
  int64_t begin;  // of this rank's block in it
};

Work scatter_blocks(Request request, const at::Tensor& input, ScatterBlock block,
                    const Group& group) {
  if (group.rank() == request.root) {
    request.input = input;
    check_tensor(input, "input", request, group);
    check_count(input, "input", block.all, request);
    check_pair(request, block.begin, 0);
  }
  return submit(std::move(request), group);
}

Request make_request(at::Tensor& output, int root, const CallOptions& options,
                     std::source_location call_site) {
  Request request = open_request(schedule::Routine::kScatter, options, call_site);
  request.root = root;
  request.output = output;
  return request;
}

}  // namespace

Work scatter(at::Tensor& output, const at::Tensor& input, int root, const Group& group,
             const CallOptions& options, std::source_location call_site) {
  Request request = make_request(output, root, options, call_site);
  check_root(request, group);
  check_tensor(output, "output", request, group);
  set_shares(request, output, output.numel(), {});
  const ScatterBlock block{output.numel() * group.size(), output.numel() * group.rank()};
  return scatter_blocks(std::move(request), input, block, group);
}

Work scatter(at::Tensor& output, const at::Tensor& input, const std::vector<int64_t>& counts,
             int root, const Group& group, const CallOptions& options,
             std::source_location call_site) {
  Request request = make_request(output, root, options, call_site);
  check_root(request, group);
  check_tensor(output, "output", request, group);
  check_counts(counts, group.size(), request);
  check_count(output, "output", counts[group.rank()], request);
  set_shares(request, output, 0, counts);
  const ScatterBlock block{sum_before(counts, group.size()), sum_before(counts, group.rank())};
  return scatter_blocks(std::move(request), input, block, group);
}

}  // namespace hanji::comm
