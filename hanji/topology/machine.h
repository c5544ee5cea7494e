#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "hanji/base/status.h"

namespace hanji::topology {

/// One level of cache that at least one usable core reaches.
struct Cache {
  int level = 1;
  int64_t bytes = 0;
  int cores_sharing = 1;
  bool operator==(const Cache&) const = default;
};

/// A NUMA node and its logical CPUs.
struct NumaNode {
  int id = 0;
  int64_t bytes = 0;
  std::vector<int> cpus;
  bool operator==(const NumaNode&) const = default;
};

/// What this process may use of this host.
struct Machine {
  int physical_cores = 1;  ///< Of the host.
  int usable_cores = 1;    ///< Physical cores within the affinity mask and the cgroup's CPU quota.
  std::vector<std::vector<int>> core_cpus;  ///< Allowed logical CPUs of each core in the mask.
  double cpu_quota = 0;                     ///< CPUs that the cgroup grants; 0: no limit.
  std::vector<Cache> caches;                ///< Data and unified caches, from level 1 up.
  std::vector<NumaNode> numa_nodes;
  std::string cpu_model;
  std::string hostname;
  int64_t memory_bytes = 0;     ///< Of the host, or the cgroup's limit where that is lower.
  int64_t available_bytes = 0;  ///< What may still be allocated now.
  std::string available_by;     ///< MemoryHeadroom::limited_by.
};

/// Reads the host by hwloc, the affinity mask of the calling thread and the cgroup's limits.
///
/// Result  usable_cores = max(1, min(cores in the mask, floor(quota))).
/// Errors  internal if hwloc cannot read the host.
Result<Machine> read_machine();

/// Result  max(1, min(cores_in_mask, floor(cpu_quota))); a quota of 0 limits nothing.
int usable_cores(int cores_in_mask, double cpu_quota);

/// The logical CPUs of each of `ranks` ranks: whole neighbouring cores, one CPU per core, so that
/// no two ranks and no two threads share a core.
///
/// Result  one list per rank; empty (pin nobody) if there are more ranks than usable cores.
std::vector<std::vector<int>> cpus_per_rank(const Machine& machine, int ranks);

std::string to_json(const Machine& machine);

}  // namespace hanji::topology
