#pragma once

#include <string>
#include <string_view>

namespace hanji::base {

/// "0.1.0", from the project's one place.
std::string_view version();

/// The version and an id of the program that runs, e.g. "0.1.0+5f2c9a0e41d7b386".
///
/// Result  equal for equal programs, different as soon as one byte of code or data differs: the
///         linker's build id, or else a hash of the program's file. No date, no path.
std::string build_id();

}  // namespace hanji::base
