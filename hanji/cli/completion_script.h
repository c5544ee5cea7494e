#pragma once

#include <string>

#include "hanji/cli/command_line.h"

namespace hanji::cli {

/// A script of bash that completes verbs, options and their values.
/// Order   after all verbs of `command` are declared.
std::string bash_completion(const VerbDescription& command);

/// The same for zsh, with what the help says of each; a file `_NAME` in a folder of its $fpath.
std::string zsh_completion(const VerbDescription& command);

/// The same for fish.
std::string fish_completion(const VerbDescription& command);

}  // namespace hanji::cli
