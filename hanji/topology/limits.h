#pragma once

#include <cstdint>
#include <filesystem>

namespace hanji::topology {

/// Limits of the control groups (v1 and v2) of this process, and of all groups above them.
struct Limits {
  double cpu_quota = 0;              ///< CPUs; 0: no limit.
  int64_t memory_bytes = INT64_MAX;  ///< The lowest limit on the way up; INT64_MAX: none.
  int64_t free_tasks = INT64_MAX;    ///< Processes and threads that may still start, likewise.
};

/// Reads `root`/proc/self/{cgroup,mountinfo} and the controllers' files below `root`.
///
/// Units   bytes, tasks, and CPUs as quota over period.
/// Errors  none: a file that is missing or unreadable limits nothing.
Limits read_limits(const std::filesystem::path& root = "/");

}  // namespace hanji::topology
