#pragma once

#include <filesystem>

namespace hanji::base {

/// A path that names the same file in every process: /dev/stdin, /dev/fd/3 and what lies below /proc/self are
/// other files in each, and become the path of the file that they lead to here.
///
/// Result  `path` itself, if it is not such a one; empty, if what it leads to has no name (a pipe, a socket, a
///         deleted file).
std::filesystem::path path_for_all_processes(const std::filesystem::path& path);

}  // namespace hanji::base
