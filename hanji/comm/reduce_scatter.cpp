#include "hanji/comm/reduce_scatter.h"

#include "hanji/comm/internal/submit.h"

namespace hanji::comm {

Work reduce_scatter(at::Tensor& output, const at::Tensor& input, const Group& group,
                    const ReduceScatterOptions& options, std::source_location call_site) {
  Request request{.routine = schedule::Routine::kReduceScatter,
                  .op = options.op,
                  .tag = options.tag,
                  .input = input,
                  .output = output,
                  .label = std::string(options.label),
                  .call_site = call_site};
  check_tensor(input, "input", request, group);
  check_tensor(output, "output", request, group);
  check_count(input, "input", output.numel() * group.size(), request);
  check_pair(request, output.numel() * group.rank(), 0);
  request.dtype = reduced_dtype(input, request);
  request.count = output.numel();
  return submit(std::move(request), group);
}

}  // namespace hanji::comm
