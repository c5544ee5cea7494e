#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "hanji/base/status.h"

namespace hanji::base {

/// How many bytes more this process may use before the kernel starts to kill.
struct MemoryHeadroom {
  int64_t bytes = 0;
  std::string limited_by;  ///< "MemAvailable" or the cgroup file that sets the limit.
};

/// Where the kernel tells; tests point these at folders of their own.
struct KernelFolders {
  std::filesystem::path proc = "/proc";
  std::filesystem::path cgroup = "/sys/fs/cgroup";
};

/// The smallest of MemAvailable and, for each memory cgroup (v1 or v2) from this process's up to
/// the root, limit - usage + inactive file cache, which the kernel drops first.
/// Errors  kInternal if /proc/meminfo has no MemAvailable.
Result<MemoryHeadroom> memory_headroom(const KernelFolders& folders = {});

/// How many processes the kernel has killed for memory since it started, in any cgroup; 0 if it
/// does not tell.
int64_t num_oom_kills(const KernelFolders& folders = {});

}  // namespace hanji::base
