#pragma once

#include <functional>
#include <string>
#include <vector>

namespace hanji::test {

/// Forks `count` copies of this process; copy i calls `body(i)`.
///
/// Result  what each returned, at most 64 KiB; "(killed by signal 9)" and the like for a copy that
///         did not get so far. All have ended.
std::vector<std::string> run_processes(int count, const std::function<std::string(int)>& body);

}  // namespace hanji::test
