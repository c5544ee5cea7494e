#include "hanji/comm/broadcast.h"

#include "hanji/comm/dtype.h"
#include "hanji/comm/internal/shares.h"
#include "hanji/comm/internal/submit.h"

namespace hanji::comm {

Work broadcast(at::Tensor& tensor, int root, const Group& group, const CallOptions& options,
               std::source_location call_site) {
  Request request{.routine = schedule::Routine::kBroadcast,
                  .root = root,
                  .tag = options.tag,
                  .input = tensor,
                  .output = tensor,
                  .label = std::string(options.label),
                  .call_site = call_site};
  check_tensor(tensor, "tensor", request, group);
  check_root(request, group);
  const Moved moved = moved_as(tensor.scalar_type());
  request.dtype = moved.dtype;
  request.count = tensor.numel() * moved.per_element;
  return submit(std::move(request), group);
}

}  // namespace hanji::comm
