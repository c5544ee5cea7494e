#include "hanji/comm/gather.h"

#include "hanji/comm/internal/shares.h"
#include "hanji/comm/internal/submit.h"

namespace hanji::comm {
namespace {

struct Block {
  int64_t all;    // elements of the wide buffer
  int64_t begin;  // of this rank's block in it
};

Work gather_blocks(Request request, at::Tensor& output, Block block, const Group& group) {
  if (group.rank() == request.root) {
    request.output = output;
    check_tensor(output, "output", request, group);
    check_count(output, "output", block.all, request);
    check_pair(request, 0, block.begin);
  }
  return submit(std::move(request), group);
}

Request make_request(const at::Tensor& input, int root, const CallOptions& options,
                     std::source_location call_site) {
  Request request = open_request(schedule::Routine::kGather, options, call_site);
  request.root = root;
  request.input = input;
  return request;
}

}  // namespace

Work gather(at::Tensor& output, const at::Tensor& input, int root, const Group& group,
            const CallOptions& options, std::source_location call_site) {
  Request request = make_request(input, root, options, call_site);
  check_root(request, group);
  check_tensor(input, "input", request, group);
  set_shares(request, input, input.numel(), {});
  const Block block{input.numel() * group.size(), input.numel() * group.rank()};
  return gather_blocks(std::move(request), output, block, group);
}

Work gather(at::Tensor& output, const at::Tensor& input, const std::vector<int64_t>& counts,
            int root, const Group& group, const CallOptions& options,
            std::source_location call_site) {
  Request request = make_request(input, root, options, call_site);
  check_root(request, group);
  check_tensor(input, "input", request, group);
  check_counts(counts, group.size(), request);
  check_count(input, "input", counts[group.rank()], request);
  set_shares(request, input, 0, counts);
  const Block block{sum_before(counts, group.size()), sum_before(counts, group.rank())};
  return gather_blocks(std::move(request), output, block, group);
}

}  // namespace hanji::comm
