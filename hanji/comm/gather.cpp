#include "hanji/comm/gather.h"

#include "hanji/comm/internal/shares.h"
#include "hanji/comm/internal/submit.h"

namespace hanji::comm {
namespace {

Work submit_gather(Request&& request, at::Tensor& output, const Group& group) {
  if (group.rank() == request.root) {
    request.output = output;
    check_tensor(output, "output", request, group);
  }
  check_extents(request, group);
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
  set_shares(request, input.scalar_type(), input.numel(), {});
  return submit_gather(std::move(request), output, group);
}

Work gather(at::Tensor& output, const at::Tensor& input, const std::vector<int64_t>& counts,
            int root, const Group& group, const CallOptions& options,
            std::source_location call_site) {
  Request request = make_request(input, root, options, call_site);
  check_root(request, group);
  check_tensor(input, "input", request, group);
  check_counts(counts, group.size(), request);
  set_shares(request, input.scalar_type(), 0, counts);
  return submit_gather(std::move(request), output, group);
}

}  // namespace hanji::comm
