#pragma once

#include <sched.h>

namespace hanji::shm::internal {

/// Tells the processor that this is a spinning loop.
inline void relax_processor() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield" ::: "memory");
#endif
}

/// Between two polls: spin for a while, then let others run.
class Patience {
 public:
  explicit Patience(int spins) : spins_(spins) {}

  /// True once the spinning is over: time to look at clocks and peers, and perhaps to sleep.
  bool pause() {
    if (count_ < spins_) {
      ++count_;
      relax_processor();
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
