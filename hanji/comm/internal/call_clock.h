#pragma once

#include <algorithm>
#include <cstdint>

#include "hanji/base/clock.h"
#include "hanji/comm/group.h"

namespace hanji::comm {

/// What a call was to the rank that made it, in times of base::now_ns(): skew until `arrived_ns`, then transfer,
/// for which the rank waited from `exposed_ns` on. Skew that nobody waited for is left out.
struct CallParts {
  int64_t skew_ns = 0;  ///< The start of the skew.
  int64_t arrived_ns = 0;
  int64_t exposed_ns = 0;
  int64_t end_ns = 0;
};

/// Splits calls that an engine runs one after another: until all ranks have called is skew, then
/// until the result is there transfer. What of both passes while nobody waits costs the rank nothing.
class CallClock {
 public:
  void begin_wait() { since_ns_ = base::now_ns(); }
  void end_wait() { since_ns_ = 0; }

  /// A call that has ended now.
  CallParts add(int64_t start_ns, int64_t arrived_ns, int64_t end_ns) {
    const int64_t since = since_ns_ == 0 ? end_ns : since_ns_;
    const CallParts parts = {.skew_ns = std::min(arrived_ns, std::max(start_ns, since)),
                             .arrived_ns = arrived_ns,
                             .exposed_ns = std::min(end_ns, std::max(arrived_ns, since)),
                             .end_ns = end_ns};
    times_.transfer_ns += end_ns - arrived_ns;
    times_.skew_ns += arrived_ns - parts.skew_ns;
    times_.exposed_ns += end_ns - parts.exposed_ns;
    return parts;
  }
  const CallTimes& times() const { return times_; }

 private:
  CallTimes times_;
  int64_t since_ns_ = 0;  // of the wait; 0: nobody waits
};

}  // namespace hanji::comm
