#include "hanji/comm/broadcast.h"

#include "hanji/comm/internal/shares.h"
#include "hanji/comm/internal/submit.h"

namespace hanji::comm {

Work broadcast(at::Tensor& tensor, int root, const Group& group, const CallOptions& options,
               std::source_location call_site) {
  return broadcast(tensor, tensor, root, group, options, call_site);
}

Work broadcast(at::Tensor& output, const at::Tensor& input, int root, const Group& group,
               const CallOptions& options, std::source_location call_site) {
  Request request = open_request(schedule::Routine::kBroadcast, options, call_site);
  request.root = root;
  request.output = output;
  check_root(request, group);
  check_tensor(output, "output", request, group);
  request.input = output;
  if (group.rank() == root) {
    request.input = input;
    check_tensor(input, "input", request, group);
  }
  set_shares(request, output.scalar_type(), output.numel(), {});
  check_extents(request, group);
  return submit(std::move(request), group);
}

}  // namespace hanji::comm
