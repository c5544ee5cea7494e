#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "hanji/base/clock.h"
#include "hanji/base/status.h"

namespace hanji::launch {

/// Starts a program with `input` as its stdin and waits for its end; its stderr is ours.
///
/// Result  what it wrote to its stdout, at most 64 MiB.
/// Errors  kTimeout at the deadline, when it is killed; kInternal with its exit code or signal; as base::from_errno()
///         where it cannot be started.
Result<std::string> run_program(std::vector<std::string> command, std::string_view input,
                                const base::Deadline& deadline);

}  // namespace hanji::launch
