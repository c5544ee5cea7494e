#include "hanji/trace/clock_offset.h"

#include <algorithm>
#include <cmath>

namespace hanji::trace {
namespace {

int64_t way_of(const ClockSample& sample) {
  return (sample.t3 - sample.t0) - (sample.t2 - sample.t1);
}

}  // namespace

std::optional<ClockReading> read_clock(const std::vector<ClockSample>& samples) {
  const auto best = std::ranges::min_element(samples, {}, way_of);
  if (best == samples.end()) return std::nullopt;
  return ClockReading{.at_ns = best->t0 + (best->t3 - best->t0) / 2,
                      .offset_ns = ((best->t1 - best->t0) + (best->t2 - best->t3)) / 2,
                      .error_ns = (way_of(*best) + 1) / 2};
}

ClockOffset::ClockOffset(const ClockReading& begin, std::optional<ClockReading> end)
    : is_own_(false), at_ns_(begin.at_ns), offset_ns_(begin.offset_ns), error_ns_(begin.error_ns) {
  if (!end || end->at_ns <= begin.at_ns) return;
  drift_ = static_cast<double>(end->offset_ns - begin.offset_ns) /
           static_cast<double>(end->at_ns - begin.at_ns);
  error_ns_ = std::max(begin.error_ns, end->error_ns);
}

int64_t ClockOffset::convert(int64_t ns) const {
  return ns + offset_ns_ + std::llround(drift_ * static_cast<double>(ns - at_ns_));
}

}  // namespace hanji::trace
