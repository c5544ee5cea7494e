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
  check_count(input, "input", output.numel() * group.size(), request);
  check_pair(request, output.numel() * group.rank(), 0);
  request.dtype = reduced_dtype(input, request);
  request.count = output.numel();
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
  check_count(input, "input", sum_before(counts, group.size()), request);
  check_count(output, "output", counts[group.rank()], request);
  check_pair(request, sum_before(counts, group.rank()), 0);
  request.dtype = reduced_dtype(input, request);
  request.count = input.numel();
  request.counts = counts;
  return submit(std::move(request), group);
}

}  // namespace hanji::comm
