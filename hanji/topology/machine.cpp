#include "hanji/topology/machine.h"

#include <unistd.h>

#include <algorithm>
#include <sstream>

#include "hanji/base/file.h"
#include "hanji/base/json.h"
#include "hanji/base/memory_headroom.h"
#include "hanji/topology/internal/hwloc.h"
#include "hanji/topology/limits.h"

namespace hanji::topology {
namespace {

Result<Topology> load_topology() {
  hwloc_topology_t raw = nullptr;
  if (hwloc_topology_init(&raw) != 0) return base::internal("hwloc: cannot start");
  Topology topology(raw);
  // The whole host, so that the number of its cores does not depend on our own mask.
  hwloc_topology_set_flags(raw, HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED);
  if (hwloc_topology_load(raw) != 0) return base::internal("hwloc: cannot read this host");
  return topology;
}

/// The affinity mask of this thread, within what the cpuset controller allows.
Bitmap allowed_cpus(hwloc_topology_t topology) {
  Bitmap mask(hwloc_bitmap_alloc());
  if (hwloc_get_cpubind(topology, mask.get(), HWLOC_CPUBIND_THREAD) != 0) {
    hwloc_bitmap_copy(mask.get(), hwloc_topology_get_allowed_cpuset(topology));
  }
  return mask;
}

void read_cores(hwloc_topology_t topology, hwloc_const_bitmap_t allowed, Machine& machine) {
  const Bitmap usable(hwloc_bitmap_alloc());
  machine.physical_cores = std::max(1, hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_CORE));
  hwloc_obj_t core = nullptr;
  while ((core = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_CORE, core)) != nullptr) {
    hwloc_bitmap_and(usable.get(), core->cpuset, allowed);
    if (!hwloc_bitmap_iszero(usable.get())) machine.core_cpus.push_back(cpus_in(usable.get()));
  }
  if (machine.core_cpus.empty()) {  // some virtual hosts show CPUs without cores
    for (int cpu : cpus_in(allowed)) machine.core_cpus.push_back({cpu});
  }
}

int cores_below(hwloc_topology_t topology, hwloc_obj_t object) {
  return std::max(1,
                  hwloc_get_nbobjs_inside_cpuset_by_type(topology, object->cpuset, HWLOC_OBJ_CORE));
}

void read_caches(hwloc_topology_t topology, hwloc_const_bitmap_t allowed, Machine& machine) {
  for (hwloc_obj_type_t type : {HWLOC_OBJ_L1CACHE, HWLOC_OBJ_L2CACHE, HWLOC_OBJ_L3CACHE}) {
    hwloc_obj_t object = nullptr;
    while ((object = hwloc_get_next_obj_by_type(topology, type, object)) != nullptr) {
      if (!hwloc_bitmap_intersects(object->cpuset, allowed)) continue;
      machine.caches.push_back({static_cast<int>(object->attr->cache.depth),
                                static_cast<int64_t>(object->attr->cache.size),
                                cores_below(topology, object)});
      break;
    }
  }
}

void read_numa_nodes(hwloc_topology_t topology, Machine& machine) {
  hwloc_obj_t node = nullptr;
  while ((node = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_NUMANODE, node)) != nullptr) {
    const auto bytes = static_cast<int64_t>(node->attr->numanode.local_memory);
    machine.numa_nodes.push_back({static_cast<int>(node->os_index), bytes, cpus_in(node->cpuset)});
  }
}

std::string cpu_model_of(hwloc_topology_t topology) {
  const hwloc_obj_t root = hwloc_get_root_obj(topology);
  const hwloc_obj_t package = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_PACKAGE, nullptr);
  for (hwloc_obj_t object : {package, root}) {
    if (object == nullptr) continue;
    if (const char* name = hwloc_obj_get_info_by_name(object, "CPUModel")) return name;
  }
  return "unknown";
}

/// A line of /proc/meminfo in bytes; 0 if it is not there. The banks' own sizes are no substitute:
/// a guest whose memory grew still shows the first ones.
int64_t meminfo(std::string_view wanted) {
  const auto text = base::read_file("/proc/meminfo", 1 << 20);
  if (!text.ok()) return 0;
  std::stringstream lines(*text);
  for (std::string line; std::getline(lines, line);) {
    int64_t kib = 0;
    std::string name;
    std::stringstream words(line);
    if (words >> name >> kib && name == wanted) return kib * 1024;
  }
  return 0;
}

std::string read_hostname() {
  char name[256] = {};
  return gethostname(name, sizeof(name) - 1) == 0 ? name : "unknown";
}

}  // namespace

Result<Machine> read_machine() {
  HANJI_ASSIGN_OR_RETURN(const Topology topology, load_topology());
  const Bitmap allowed = allowed_cpus(topology.get());
  const Limits limits = read_limits();
  HANJI_ASSIGN_OR_RETURN(const base::MemoryHeadroom headroom, base::memory_headroom());
  Machine machine;
  read_cores(topology.get(), allowed.get(), machine);
  read_caches(topology.get(), allowed.get(), machine);
  read_numa_nodes(topology.get(), machine);
  machine.cpu_model = cpu_model_of(topology.get());
  machine.hostname = read_hostname();
  machine.cpu_quota = limits.cpu_quota;
  machine.usable_cores = usable_cores(static_cast<int>(machine.core_cpus.size()), limits.cpu_quota);
  machine.memory_bytes = std::min(meminfo("MemTotal:"), limits.memory_bytes);
  machine.available_bytes = headroom.bytes;
  machine.available_by = headroom.limited_by;
  return machine;
}

int usable_cores(int cores_in_mask, double cpu_quota) {
  if (cpu_quota <= 0) return std::max(1, cores_in_mask);
  return std::max(1, static_cast<int>(std::min<double>(cores_in_mask, cpu_quota)));
}

std::vector<std::vector<int>> cpus_per_rank(const Machine& machine, int ranks) {
  const int cores = std::min(machine.usable_cores, static_cast<int>(machine.core_cpus.size()));
  std::vector<std::vector<int>> result;
  if (ranks < 1 || ranks > cores) return result;
  for (int rank = 0; rank < ranks; ++rank) {
    const int begin = cores * rank / ranks;
    const int end = cores * (rank + 1) / ranks;
    std::vector<int> cpus;
    for (int core = begin; core < end; ++core) cpus.push_back(machine.core_cpus[core].front());
    result.push_back(std::move(cpus));
  }
  return result;
}

std::string to_json(const Machine& machine) {
  base::Json json = {{"hostname", machine.hostname},
                     {"cpu_model", machine.cpu_model},
                     {"physical_cores", machine.physical_cores},
                     {"usable_cores", machine.usable_cores},
                     {"cpu_quota", machine.cpu_quota},
                     {"core_cpus", machine.core_cpus},
                     {"memory_bytes", machine.memory_bytes},
                     {"available_bytes", machine.available_bytes}};
  json["caches"] = base::Json::array();
  for (const Cache& cache : machine.caches) {
    json["caches"].push_back(
        {{"level", cache.level}, {"bytes", cache.bytes}, {"cores_sharing", cache.cores_sharing}});
  }
  json["numa_nodes"] = base::Json::array();
  for (const NumaNode& node : machine.numa_nodes) {
    json["numa_nodes"].push_back({{"id", node.id}, {"bytes", node.bytes}, {"cpus", node.cpus}});
  }
  return base::dump(json);
}

}  // namespace hanji::topology
