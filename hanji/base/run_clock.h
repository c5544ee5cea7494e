#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>

#include "hanji/base/clock.h"
#include "hanji/base/status.h"

namespace hanji::base {

/// A line of time that stands still while this process is paused: stopped by a signal, a frozen
/// cgroup, a scheduler that suspends the job, or a suspended virtual machine.
///
/// A pause is a gap of more than kMaxStep between two ticks; all but kMaxStep of it is not counted.
/// A tick that is overdue counts as a gap already, so that a thread that wakes up before the ticking
/// one judges nobody by the time of the pause.
/// Thread  tick(), start() and stop() by one thread at a time; the others by any.
class RunClock {
 public:
  static constexpr int64_t kMaxStep = 1'000'000'000;  ///< Nanoseconds.

  /// From now on somebody ticks more often than every kMaxStep.
  void start(int64_t now_ns);
  void tick(int64_t now_ns);
  /// Nobody ticks any more: every time is counted.
  void stop(int64_t now_ns);

  /// Nanoseconds that are counted until `now_ns` of base::now_ns(); the same without any pause.
  int64_t at(int64_t now_ns) const;
  /// When the last pause ended, as base::now_ns(); 0: there was none.
  int64_t resumed_ns(int64_t now_ns) const;

 private:
  struct State {
    int64_t tick_ns = 0;
    int64_t counted_ns = 0;  ///< At the tick.
    int64_t resumed_ns = 0;
    bool ticks = false;
  };
  static int64_t count(const State& state, int64_t now_ns);
  State read() const;
  void write(const State& state);

  // Odd while it is written.
  std::atomic<uint32_t> version_{0};
  std::atomic<int64_t> tick_ns_{0};
  std::atomic<int64_t> counted_ns_{0};
  std::atomic<int64_t> resumed_ns_{0};
  std::atomic<bool> ticks_{false};
};

/// Nanoseconds of this process's RunClock now, or at `now_ns` of base::now_ns(): what deadlines and
/// silences of others are measured by.
int64_t running_ns();
int64_t running_ns(int64_t now_ns);
/// When this process last went on after a pause, as now_ns(); 0: it was never paused.
int64_t resumed_ns();

/// While any lives, a thread of this process ticks its RunClock five times per second. Without one,
/// pauses are counted as time.
/// Errors  kOutOfMemory if no thread can be started.
class PauseWatch {
 public:
  static Result<PauseWatch> start();

 private:
  class Ticker;
  explicit PauseWatch(std::shared_ptr<Ticker> ticker) : ticker_(std::move(ticker)) {}
  std::shared_ptr<Ticker> ticker_;
};

}  // namespace hanji::base
