#pragma once

#include <exception>

#include "hanji/base/status.h"

namespace hanji::cli {

/// The exit code of the command for a failure: 0 ok, 2 usage or configuration (also not_found and
/// unsupported), 3 corrupt input, 4 out of memory, 5 timeout, 6 peer lost or mismatch, 70 internal.
int exit_code(Code code);

/// Of a run that a signal ended early, after it had saved; 0 for no signal.
int stop_code(int stop_signal);

/// Of an error of no type of hanji's: kOutOfMemory where memory ran out, also in libtorch's allocator, whose error has
/// no type of its own; else kInternal.
Status status_of(const std::exception& error);

inline constexpr int kUsage = 2;
inline constexpr int kDiffers = 7;        ///< Two results that should be compared are not the same.
inline constexpr int kInterrupted = 130;  ///< INT: saved and left.
inline constexpr int kRequeue = 75;       ///< Another stop signal: saved and left; start again.

}  // namespace hanji::cli
