#include "hanji/comm/all_to_all.h"

#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include "hanji/comm/all_gather.h"
#include "hanji/comm/internal/shares.h"
#include "hanji/comm/internal/submit.h"

namespace hanji::comm {
namespace {

Request make_request(at::Tensor& output, const at::Tensor& input, const CallOptions& options,
                     std::source_location call_site) {
  Request request = open_request(schedule::Routine::kAllToAll, options, call_site);
  request.input = input;
  request.output = output;
  return request;
}

bool same_memory(const at::Tensor& input, const at::Tensor& output) {
  return input.numel() > 0 && input.const_data_ptr() == output.const_data_ptr();
}

[[noreturn]] void refuse_all_to_all(const std::string& why) {
  throw Error(base::invalid_argument("all_to_all: " + why));
}

}  // namespace

Work all_to_all(at::Tensor& output, const at::Tensor& input, const Group& group,
                const CallOptions& options, std::source_location call_site) {
  Request request = make_request(output, input, options, call_site);
  check_tensor(input, "input", request, group);
  check_tensor(output, "output", request, group);
  if (input.numel() % group.size() != 0) {
    refuse_all_to_all(fmt::format("{} elements do not divide into {} equal slices; give counts",
                                  input.numel(), group.size()));
  }
  request.in_place = same_memory(input, output);
  set_shares(request, input.scalar_type(), input.numel() / group.size(), {});
  check_extents(request, group);
  return submit(std::move(request), group);
}

Work all_to_all(at::Tensor& output, const at::Tensor& input, const std::vector<int64_t>& counts,
                const Group& group, const CallOptions& options, std::source_location call_site) {
  Request request = make_request(output, input, options, call_site);
  check_tensor(input, "input", request, group);
  check_tensor(output, "output", request, group);
  check_counts(counts, int64_t{group.size()} * group.size(), request);
  set_shares(request, input.scalar_type(), 0, counts);
  check_extents(request, group);
  if (same_memory(input, output))
    refuse_all_to_all("uneven slices cannot change places in one buffer");
  return submit(std::move(request), group);
}

std::vector<int64_t> exchange_counts(const std::vector<int64_t>& given, const Group& group,
                                     const CallOptions& options, std::source_location call_site) {
  const int64_t size = group.size();
  if (static_cast<int64_t>(given.size()) != size) {
    refuse_all_to_all(fmt::format("{} counts are given for {} ranks", given.size(), size));
  }
  at::Tensor mine = at::empty({size}, at::kLong);
  std::copy(given.begin(), given.end(), mine.data_ptr<int64_t>());
  at::Tensor all = at::empty({size * size}, at::kLong);
  all_gather(all, mine, group, options, call_site).wait();
  const auto* counts = all.const_data_ptr<int64_t>();
  return {counts, counts + size * size};
}

}  // namespace hanji::comm
