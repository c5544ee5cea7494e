#pragma once

#include <optional>

#include "hanji/base/fd.h"
#include "hanji/base/status.h"

namespace hanji::train {

/// INT, TERM and USR1 as something to look at between steps, instead of something that strikes.
///
/// Thread  make it before any other thread starts: the signals are blocked in the calling thread
///         and in all that it starts, and stay so: one that nobody polled, because another rank had
///         told first, must not strike a rank that is about to end as it should.
class StopSignal {
 public:
  static Result<StopSignal> create();
  StopSignal(StopSignal&&) = default;
  StopSignal& operator=(StopSignal&&) = default;

  /// The last signal that came and that no earlier call has told, if any. Never blocks.
  std::optional<int> poll();

 private:
  explicit StopSignal(base::Fd fd) : fd_(std::move(fd)) {}
  base::Fd fd_;
};

}  // namespace hanji::train
