#include "hanji/comm/scatter.h"

#include "hanji/comm/internal/shares.h"
#include "hanji/comm/internal/submit.h"

namespace hanji::comm {
namespace {

Work submit_scatter(Request&& request, const at::Tensor& input, const Group& group) {
  if (group.rank() == request.root) {
    request.input = input;
    check_tensor(input, "input", request, group);
  }
  check_extents(request, group);
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
  set_shares(request, output.scalar_type(), output.numel(), {});
  return submit_scatter(std::move(request), input, group);
}

Work scatter(at::Tensor& output, const at::Tensor& input, const std::vector<int64_t>& counts,
             int root, const Group& group, const CallOptions& options,
             std::source_location call_site) {
  Request request = make_request(output, root, options, call_site);
  check_root(request, group);
  check_tensor(output, "output", request, group);
  check_counts(counts, group.size(), request);
  set_shares(request, output.scalar_type(), 0, counts);
  return submit_scatter(std::move(request), input, group);
}

}  // namespace hanji::comm
