#pragma once

#include <algorithm>
#include <cstdint>

#include "hanji/base/clock.h"
#include "hanji/comm/group.h"

namespace hanji::comm {

/// Splits calls that an engine runs one after another: until all ranks have called is skew, then
/// until the result is there transfer. What of both passes while nobody waits costs the rank nothing.
class CallClock {
 public:
  void begin_wait() { since_ns_ = base::now_ns(); }
  void end_wait() { since_ns_ = 0; }

  /// A call that has ended now. Returns how long of its transfer the rank waited.
  int64_t add(int64_t start_ns, int64_t arrived_ns, int64_t end_ns) {
    times_.transfer_ns += end_ns - arrived_ns;
    if (since_ns_ == 0) return 0;
    times_.skew_ns += std::max<int64_t>(0, arrived_ns - std::max(start_ns, since_ns_));
    const int64_t exposed = std::max<int64_t>(0, end_ns - std::max(arrived_ns, since_ns_));
    times_.exposed_ns += exposed;
    return exposed;
  }
  const CallTimes& times() const { return times_; }

 private:
  CallTimes times_;
  int64_t since_ns_ = 0;  // of the wait; 0: nobody waits
};

}  // namespace hanji::comm
