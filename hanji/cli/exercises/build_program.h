#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "hanji/cli/exercises/command_runner.h"

namespace hanji::cli {

/// What is missing to compile a program against hanji, with the way out; empty: nothing.
std::string missing_for_programs(const std::filesystem::path& prefix);

/// Compiles `target` of the CMake project in `source` into `build`.
/// Result  the last lines of the compiler if it fails; else nothing.
/// Errors  as CommandRunner::run().
std::optional<std::string> build_program(const std::filesystem::path& source,
                                         const std::filesystem::path& build,
                                         const std::string& target, CommandRunner& runner);

}  // namespace hanji::cli
