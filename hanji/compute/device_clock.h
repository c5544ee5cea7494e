#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <functional>

namespace hanji::compute {

/// How work on a device is timed: a host queues calls, and the device carries them out in order. Tests bring
/// one that is counted, not waited for.
struct DeviceClock {
  std::function<int64_t()> now_ns;  ///< The host's.
  std::function<void()> wait;       ///< Until the device has done all that was queued.
  /// Queues work that keeps the device busy for about so many seconds, and takes the host a small part of them.
  std::function<void(double seconds)> occupy;
};

/// The clock of a device. On the CPU a call is done when it returns, and so is what occupies it.
/// Cost  on a GPU, 256 MiB on it as long as the clock lives, and some milliseconds to learn its speed.
DeviceClock device_clock(c10::Device device);

/// One call, by its two sides. A call that reads a number has all of its time in both.
struct CallTime {
  double device = 0;  ///< Seconds that the device takes, whether or not it waits for its host.
  double launch = 0;  ///< Seconds of the host, until it may go on.
};

/// Times `call` by repeating it. Its first run warms up and does not count: kernels are loaded, libraries make
/// their handles, memory is taken.
///
/// Calls of which the device is done before the host has queued the next say nothing of the device: they are
/// queued behind work that occupies it, and what they add to it is theirs.
///
/// `budget_seconds`: to spend, beside the first run and at least one round.
/// Result  medians of rounds.
/// Errors  throws what the call throws.
CallTime time_call(const DeviceClock& clock, const std::function<void()>& call,
                   double budget_seconds);

/// Seconds from an idle device until the device has done the call: what a step pays for a part at whose end
/// the host waits. Warmed up and repeated as by time_call().
double time_until_done(const DeviceClock& clock, const std::function<void()>& call,
                       double budget_seconds);

}  // namespace hanji::compute
