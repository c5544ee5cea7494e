#pragma once

#include <filesystem>

#include "hanji/cli/doctor/finding.h"
#include "hanji/topology/machine.h"

namespace hanji::cli {

/// An all_reduce between two spawned ranks, its result verified on both. Call it first: it copies
/// this process, which must have one thread.
Findings check_ranks();

/// hanji, libtorch, compiler, kernel.
Findings find_versions();

/// Cores, caches, memory, and what the cgroup takes away.
Findings find_cores(const topology::Machine& machine);

/// Kernels with their rates and errors, and what memory gives.
///
/// Cost  some tenths of a second.
Findings measure_speed(const topology::Machine& machine);

/// Products, memory, copies and launches of the first GPU, or why there are none.
///
/// Cost  about a second where there is a GPU. It takes some of its memory until the process ends.
Findings measure_gpu();

/// Huge pages for the heap, memfd, /dev/shm, descriptors, processes, locked memory.
Findings check_limits();

/// Bytes per second of 64 MiB written to `folder` and synced, and its free space. The file is gone
/// when this returns.
Findings measure_disk(const std::filesystem::path& folder);

/// Launchers in the folders of `path` (as in PATH), and the engines of this build.
Findings find_programs(std::string_view path);

}  // namespace hanji::cli
