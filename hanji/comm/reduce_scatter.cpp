#include "hanji/comm/reduce_scatter.h"

#include "hanji/comm/internal/shares.h"
#include "hanji/comm/internal/submit.h"

namespace hanji::comm {

Work reduce_scatter(at::Tensor& output, const at::Tensor& input, const Group& group,
                    const ReduceScatterOptions& options, std::source_location call_site) {
  Request request = open_request(schedule::Routine::kReduceScatter, options, call_site);
  request.input = input;
  request.output = output;
  check_tensor(input, "input", request, group);
  check_tensor(output, "output", request, group);
  set_reduced(request, input.scalar_type(), output.numel(), {});
  check_extents(request, group);
  return submit(std::move(request), group);
}

Work reduce_scatter(at::Tensor& output, const at::Tensor& input, const std::vector<int64_t>& counts,
                    const Group& group, const ReduceScatterOptions& options,
                    std::source_location call_site) {
  Request request = open_request(schedule::Routine::kReduceScatter, options, call_site);
  request.input = input;
  request.output = output;
  check_tensor(input, "input", request, group);
  check_tensor(output, "output", request, group);
  check_counts(counts, group.size(), request);
  set_reduced(request, input.scalar_type(), 0, counts);
  check_extents(request, group);
  return submit(std::move(request), group);
}

}  // namespace hanji::comm
