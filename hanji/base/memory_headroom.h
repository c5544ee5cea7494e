#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

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

/// Bytes of this process that lie in memory.
struct ProcessMemory {
  int64_t private_bytes = 0;  ///< Its own: heap, stacks, what the loader has written.
  int64_t file_bytes = 0;     ///< Bytes of mapped files, which processes of one program share.
  int64_t peak_bytes = 0;     ///< The most that it had at once, memory shared with peers among it.
};

/// Reads the status of this process.
/// Errors  kInternal if it does not tell.
Result<ProcessMemory> process_memory(const KernelFolders& folders = {});

/// Processes that the kernel has killed for memory.
struct OomKills {
  /// What one memory cgroup counts: version 1 its own processes, version 2 those below it too.
  struct Group {
    std::string file;  ///< That tells: memory.oom_control or memory.events.
    int64_t count = 0;
    int64_t limit_bytes = INT64_MAX;
  };
  int64_t on_machine = 0;     ///< Since it started, in any cgroup; 0 if it does not tell.
  std::vector<Group> groups;  ///< From this process's up to the root.
};
OomKills oom_kills(const KernelFolders& folders = {});

/// Where the kernel has killed between two readings, and which file tells: "of this process's cgroup
/// (.../memory.events: oom_kill 0 -> 1, limit 512 MiB)", else "on this machine (/proc/vmstat: ...)".
/// Empty: nowhere.
std::string describe_oom_kills(const OomKills& before, const OomKills& now);

}  // namespace hanji::base
