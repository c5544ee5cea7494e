#pragma once

#include <filesystem>

#include "hanji/cli/exercises/command_runner.h"
#include "hanji/cli/exercises/judgement.h"

namespace hanji::cli {

/// Checks what lies in `folder`: gaps first, then runs the script there, or compiles and runs the program, and
/// judges what they said and left. A line on stderr says before what is run and how long at most.
///
/// Cost    seconds to a minute; every command that it starts has a deadline.
/// Errors  throws Error: kNotFound without the file of the exercise, a compiler, CMake, or hanji's package for it;
///         as CommandRunner::run(). What the user's file does wrong is a point of the judgement.
Judgement check_exercise(const Exercise& exercise, const std::filesystem::path& folder,
                         CommandRunner& runner);

/// The folder that find_package(hanji) is given: where this command is installed, or its build.
std::filesystem::path package_prefix();

}  // namespace hanji::cli
