#pragma once

#include <chrono>
#include <cstdint>

namespace hanji::base {

/// Nanoseconds of CLOCK_MONOTONIC: one line of time for all processes of a host.
int64_t now_ns();

/// Nanoseconds since 1970-01-01 UTC. For people and file names; it may jump.
int64_t wall_ns();

/// A moment after which a wait gives up. Time for which this process was paused does not count where a
/// PauseWatch lives (run_clock.h).
class Deadline {
 public:
  /// `duration` from now; a negative one has passed already, a huge one never passes.
  static Deadline after(std::chrono::nanoseconds duration);
  static Deadline never();

  bool passed() const;
  /// At least zero; nanoseconds::max() if the deadline never comes.
  std::chrono::nanoseconds remaining() const;
  /// For poll(2): remaining milliseconds rounded up, at most one hour.
  int poll_ms() const;

 private:
  explicit Deadline(int64_t at_ns) : at_ns_(at_ns) {}
  int64_t at_ns_;
};

}  // namespace hanji::base
