#pragma once

#include "hanji/base/status.h"

namespace hanji::cli {

/// The exit code of the command for a failure: 0 ok, 2 usage or configuration (also not_found and
/// unsupported), 3 corrupt input, 4 out of memory, 5 timeout, 6 peer lost or mismatch, 70 internal.
int exit_code(Code code);

/// Of a run that a signal ended early, after it had saved; 0 for no signal.
int stop_code(int stop_signal);

inline constexpr int kUsage = 2;
inline constexpr int kDiffers = 7;        ///< Two results that should be compared are not the same.
inline constexpr int kInterrupted = 130;  ///< INT: saved and left.
inline constexpr int kRequeue = 75;       ///< TERM, USR1: saved and left; start me again.

}  // namespace hanji::cli
