#include "hanji/comm/all_gather.h"

#include "hanji/comm/dtype.h"
#include "hanji/comm/internal/shares.h"
#include "hanji/comm/internal/submit.h"

namespace hanji::comm {

Work all_gather(at::Tensor& output, const at::Tensor& input, const Group& group,
                const CallOptions& options, std::source_location call_site) {
  Request request = open_request(schedule::Routine::kAllGather, options, call_site);
  request.input = input;
  request.output = output;
  check_tensor(input, "input", request, group);
  check_tensor(output, "output", request, group);
  check_count(output, "output", input.numel() * group.size(), request);
  check_pair(request, 0, input.numel() * group.rank());
  const Moved moved = moved_as(input.scalar_type());
  request.dtype = moved.dtype;
  request.count = input.numel() * moved.per_element;
  return submit(std::move(request), group);
}

Work all_gather(at::Tensor& output, const at::Tensor& input, const std::vector<int64_t>& counts,
                const Group& group, const CallOptions& options, std::source_location call_site) {
  Request request = open_request(schedule::Routine::kAllGather, options, call_site);
  request.input = input;
  request.output = output;
  check_tensor(input, "input", request, group);
  check_tensor(output, "output", request, group);
  check_counts(counts, group.size(), request);
  check_count(input, "input", counts[group.rank()], request);
  check_count(output, "output", sum_before(counts, group.size()), request);
  check_pair(request, 0, sum_before(counts, group.rank()));
  set_shares(request, input, 0, counts);
  return submit(std::move(request), group);
}

}  // namespace hanji::comm
