#include "hanji/comm/internal/shares.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "hanji/comm/dtype.h"

namespace hanji::comm {

void check_root(const Request& request, const Group& group) {
  if (request.root >= 0 && request.root < group.size()) return;
  throw Error(base::invalid_argument(
      fmt::format("{}: root {} is not a rank of group {} of {}; ranks start at 0",
                  schedule::name_of(request.routine), request.root, group.name(), group.size())));
}

void check_counts(const std::vector<int64_t>& counts, int64_t expected, const Request& request) {
  const std::string_view routine = schedule::name_of(request.routine);
  if (static_cast<int64_t>(counts.size()) != expected) {
    throw Error(base::invalid_argument(
        fmt::format("{}: {} counts are given and {} needed{}", routine, counts.size(), expected,
                    request.routine == schedule::Routine::kAllToAll ? ", one for each pair of ranks"
                                                                    : ", one for each rank")));
  }
  constexpr int64_t kMost = int64_t{1} << 48;
  int64_t sum = 0;
  for (const int64_t count : counts) {
    if (count < 0 || count > kMost - sum) {
      throw Error(base::invalid_argument(
          fmt::format("{}: a count of {} elements is out of range", routine, count)));
    }
    sum += count;
  }
}

int64_t sum_before(const std::vector<int64_t>& counts, int64_t rank) {
  return std::accumulate(counts.begin(), counts.begin() + rank, int64_t{0});
}

void set_shares(Request& request, const at::Tensor& tensor, int64_t count,
                std::vector<int64_t> counts) {
  const Moved moved = moved_as(tensor.scalar_type());
  request.dtype = moved.dtype;
  request.count = count * moved.per_element;
  if (counts.empty()) return;
  for (int64_t& each : counts) each *= moved.per_element;
  request.count = std::accumulate(counts.begin(), counts.end(), int64_t{0});
  request.counts = std::move(counts);
}

}  // namespace hanji::comm
