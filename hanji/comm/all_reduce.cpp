#include "hanji/comm/all_reduce.h"

#include "hanji/comm/internal/submit.h"

namespace hanji::comm {

Work all_reduce(at::Tensor& tensor, const Group& group, const AllReduceOptions& options,
                std::source_location call_site) {
  Request request{.routine = schedule::Routine::kAllReduce,
                  .op = options.op,
                  .tag = options.tag,
                  .input = tensor,
                  .output = tensor,
                  .label = std::string(options.label),
                  .call_site = call_site};
  check_tensor(tensor, "tensor", request, group);
  request.dtype = reduced_dtype(tensor, request);
  request.count = tensor.numel();
  return submit(std::move(request), group);
}

}  // namespace hanji::comm
