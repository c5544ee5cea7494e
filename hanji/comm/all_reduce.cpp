#include "hanji/comm/all_reduce.h"

#include "hanji/comm/internal/submit.h"

namespace hanji::comm {

Work all_reduce(at::Tensor& tensor, const Group& group, const AllReduceOptions& options,
                std::source_location call_site) {
  Request request = open_request(schedule::Routine::kAllReduce, options, call_site);
  request.input = request.output = tensor;
  check_tensor(tensor, "tensor", request, group);
  request.dtype = reduced_dtype(tensor, request);
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
  check_count(output, "output", input.numel(), request);
  check_pair(request, 0, 0);
  request.dtype = reduced_dtype(input, request);
  request.count = input.numel();
  return submit(std::move(request), group);
}

}  // namespace hanji::comm
