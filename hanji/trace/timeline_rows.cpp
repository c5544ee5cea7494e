#include "hanji/trace/timeline_rows.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <tuple>

#include "hanji/trace/kernels.h"

namespace hanji::trace {
namespace {

/// Ends of the spans that are open in a row, the innermost last.
using OpenEnds = std::vector<int64_t>;

/// Opens the span in `row` if it nests there.
bool open(OpenEnds& row, int64_t start, int64_t end) {
  while (!row.empty() && row.back() <= start) row.pop_back();
  if (!row.empty() && row.back() < end) return false;
  row.push_back(end);
  return true;
}

}  // namespace

std::vector<int> rows_of(const std::vector<Event>& events) {
  std::vector<size_t> order(events.size());
  std::iota(order.begin(), order.end(), size_t{0});
  const auto place = [&](size_t i) {
    return std::tuple(to_us(events[i].start_ns), -to_us(events[i].end_ns));
  };
  // An outer span is added after those within it.
  std::ranges::stable_sort(order, [&](size_t a, size_t b) {
    return place(a) != place(b) ? place(a) < place(b) : a > b;
  });
  std::vector<int> rows(events.size());
  std::array<std::vector<OpenEnds>, kNumLanes> lanes;
  for (const size_t i : order) {
    std::vector<OpenEnds>& lane = lanes[static_cast<size_t>(events[i].lane)];
    const int64_t start = to_us(events[i].start_ns), end = to_us(events[i].end_ns);
    const auto found =
        std::ranges::find_if(lane, [&](OpenEnds& row) { return open(row, start, end); });
    rows[i] = static_cast<int>(found - lane.begin());
    if (found == lane.end()) lane.push_back({end});
  }
  return rows;
}

}  // namespace hanji::trace
