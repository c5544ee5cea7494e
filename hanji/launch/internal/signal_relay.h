#pragma once

#include <csignal>
#include <map>
#include <optional>

#include "hanji/base/fd.h"
#include "hanji/base/status.h"

namespace hanji::launch {

/// While it lives, the stop signals that this process obeys (base/stop_signals.h) become bytes of a pipe
/// that poll(2) sees, whichever thread the kernel chose. The dispositions before come back at its end.
///
/// Dispositions belong to the process, so there is at most one relay at a time.
class SignalRelay {
 public:
  /// Errors  kInvalidArgument if another one lives.
  static Result<SignalRelay> install();
  SignalRelay(SignalRelay&& other) noexcept;
  SignalRelay& operator=(SignalRelay&&) = delete;
  ~SignalRelay();

  int fd() const { return read_end_.get(); }
  /// The oldest signal that came and was not taken yet.
  std::optional<int> take();

 private:
  SignalRelay() = default;

  base::Fd read_end_;
  base::Fd write_end_;
  std::map<int, struct sigaction> before_;  ///< By signal; empty once moved from.
};

}  // namespace hanji::launch
