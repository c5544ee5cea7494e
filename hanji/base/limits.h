#pragma once

#include <cstdint>
#include <string_view>

#include "hanji/base/status.h"

namespace hanji::base {

/// Ranks of a job that run on one host and share its memory. A job over several hosts may have more.
inline constexpr int kMaxRanksPerHost = 16;
/// Ranks of a job on all hosts together, and so the most hosts.
inline constexpr int kMaxRanks = 65536;

/// Whether this process may open `more` descriptors, told before the first of them is missing.
/// Errors  kInvalidArgument, with what is open, the limit and how to raise it.
Status check_descriptors(int64_t more, std::string_view for_what);

/// What it means that a process or thread could not be made: `error` of fork(2) or of a thread.
/// Errors  kInvalidArgument naming the limits if one of them is why; else as from_errno().
Status no_more_processes(std::string_view what, int error);

}  // namespace hanji::base
