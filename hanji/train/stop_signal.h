#pragma once

#include <optional>

#include "hanji/base/fd.h"
#include "hanji/base/status.h"

namespace hanji::train {

/// Receives the stop signals that this process obeys (base/stop_signals.h) by polling between steps
/// instead of by a handler, also one that came before and was held.
///
/// Thread  make it before any other thread starts: the signals are blocked in the calling thread and
///         in threads that it starts. They remain blocked, because a signal that was not polled must
///         not kill a rank that is about to end in order.
class StopSignal {
 public:
  static Result<StopSignal> create();
  StopSignal(StopSignal&&) = default;
  StopSignal& operator=(StopSignal&&) = default;

  /// Returns the last signal received since the last call, if any. Never blocks.
  std::optional<int> poll();

 private:
  explicit StopSignal(base::Fd fd) : fd_(std::move(fd)) {}
  base::Fd fd_;
};

}  // namespace hanji::train
