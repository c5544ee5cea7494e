#pragma once

#include <sched.h>

#include "hanji/base/relax_processor.h"

namespace hanji::shm::internal {

/// Asks for the cache line of `address` as this processor's own, because it is about to be written: the
/// store then does not wait until those who have read the line give it up.
inline void claim_line(const void* address) {
#if defined(__x86_64__)
  asm volatile("prefetchw %0" : : "m"(*static_cast<const char*>(address)));
#else
  __builtin_prefetch(address, 1);
#endif
}

/// Between two polls: spin for a while, then let others run.
class SpinWait {
 public:
  explicit SpinWait(int spins) : spins_(spins) {}

  /// True once the spinning is over: time to look at clocks and peers, and perhaps to sleep.
  bool pause() {
    if (count_ < spins_) {
      ++count_;
      base::relax_processor();
      return false;
    }
    ::sched_yield();
    return true;
  }
  void reset() { count_ = 0; }

 private:
  int spins_;
  int count_ = 0;
};

}  // namespace hanji::shm::internal
