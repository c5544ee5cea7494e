#include "hanji/comm/all_reduce.h"

#include "hanji/comm/internal/shares.h"
#include "hanji/comm/internal/submit.h"

namespace hanji::comm {

Work all_reduce(at::Tensor& tensor, const Group& group, const AllReduceOptions& options,
                std::source_location call_site) {
  Request request = open_request(schedule::Routine::kAllReduce, options, call_site);
  request.input = request.output = tensor;
  check_tensor(tensor, "tensor", request, group);
  request.dtype = reduced_dtype(tensor.scalar_type(), request);
  request.count = tensor.numel();
  return submit(std::move(request), group);
}

Work all_reduce(at::Tensor& output, const at::Tensor& input, const Group& group,
                const AllReduceOptions& options, std::source_location call_site) {
  Request request = open_request(schedule::Routine::kAllReduce, options, call_site);
  request.input = input;
  request.output = output;
  check_tensor(input, "input", request, group);
  check_tensor(output, "output", request, group);
  set_reduced(request, input.scalar_type(), input.numel(), {});
  check_extents(request, group);
  return submit(std::move(request), group);
}

}  // namespace hanji::comm
