#include "hanji/topology/read_graph.h"

#include <fmt/format.h>

#include "hanji/topology/gpu_direct.h"
#include "hanji/topology/internal/add_devices.h"
#include "hanji/topology/internal/hwloc.h"

namespace hanji::topology {
namespace {

Result<Topology> load(const GraphSource& source) {
  hwloc_topology_t raw = nullptr;
  if (hwloc_topology_init(&raw) != 0) return base::internal("hwloc: cannot start");
  Topology topology(raw);
  // Those start whole GPU runtimes; what they would say, NVML says.
  for (const char* slow : {"opencl", "cuda", "gl", "nvml", "rsmi", "levelzero"}) {
    hwloc_topology_set_components(raw, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, slow);
  }
  hwloc_topology_set_flags(raw, HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED);
  hwloc_topology_set_io_types_filter(raw, HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
  if (!source.synthetic.empty() &&
      hwloc_topology_set_synthetic(raw, source.synthetic.c_str()) != 0) {
    return base::invalid_argument(fmt::format(
        "hwloc: \"{}\" describes no host; write e.g. \"pack:2 core:4 pu:1\"", source.synthetic));
  }
  if (!source.xml.empty() &&
      hwloc_topology_set_xmlbuffer(raw, source.xml.c_str(),
                                   static_cast<int>(source.xml.size()) + 1) != 0) {
    return base::invalid_argument("hwloc: this XML is no topology; write it by lstopo --of xml");
  }
  if (hwloc_topology_load(raw) == 0) return topology;
  if (source.xml.empty()) return base::internal("hwloc: cannot read this host");
  return base::invalid_argument("hwloc: this XML is no topology; write it by lstopo --of xml");
}

std::string text_of(hwloc_obj_t object, const char* info) {
  const char* value = hwloc_obj_get_info_by_name(object, info);
  return value == nullptr ? "" : value;
}

/// Walks hwloc's tree; objects that are no vertex (groups, inner caches, threads) are transparent.
class Walk {
 public:
  Walk(Graph& graph, const GraphSource& source) : graph_(graph), devices_(graph, source.root) {}

  void visit(hwloc_obj_t object, int parent) {
    const int place = add(object, parent);
    for (hwloc_obj_t child = object->memory_first_child; child; child = child->next_sibling) {
      visit(child, place);
    }
    for (hwloc_obj_t child = object->first_child; child; child = child->next_sibling) {
      visit(child, place);
    }
    for (hwloc_obj_t child = object->io_first_child; child; child = child->next_sibling) {
      visit(child, place);
    }
  }

 private:
  /// Result  the object's vertex, or the parent if it has none.
  int add(hwloc_obj_t object, int parent) {
    if (hwloc_obj_type_is_io(object->type)) return devices_.add(object, parent);
    Vertex vertex;
    switch (object->type) {
      case HWLOC_OBJ_MACHINE: return add_machine(object);
      case HWLOC_OBJ_PACKAGE:
        vertex.kind = VertexKind::kPackage;
        vertex.name =
            fmt::format("package {} {}", object->logical_index, text_of(object, "CPUModel"));
        break;
      case HWLOC_OBJ_NUMANODE:
        vertex.kind = VertexKind::kMemory;
        vertex.name = fmt::format("NUMA node {}", object->os_index);
        vertex.bytes = static_cast<int64_t>(object->attr->numanode.local_memory);
        break;
      case HWLOC_OBJ_CORE:
        vertex.kind = VertexKind::kCore;
        vertex.name = fmt::format("core {}", object->logical_index);
        break;
      case HWLOC_OBJ_PU:  // some virtual hosts show CPUs without cores
        if (ancestor_of(graph_, parent, VertexKind::kCore) >= 0) return parent;
        vertex.kind = VertexKind::kCore;
        vertex.name = fmt::format("CPU {}", object->os_index);
        break;
      default:
        if (!hwloc_obj_type_is_dcache(object->type)) return parent;
        if (ancestor_of(graph_, parent, VertexKind::kCache) >= 0) return parent;
        vertex.kind = VertexKind::kCache;
        vertex.name = fmt::format("L{} {}", object->attr->cache.depth, object->logical_index);
        vertex.bytes = static_cast<int64_t>(object->attr->cache.size);
    }
    vertex.name.erase(vertex.name.find_last_not_of(' ') + 1);
    vertex.id = fmt::format("{}:{}", name_of(vertex.kind), object->logical_index);
    if (vertex.kind != VertexKind::kPackage) vertex.cpus = cpus_in(object->cpuset);
    return graph_.add(std::move(vertex), parent);
  }

  int add_machine(hwloc_obj_t object) {
    Vertex vertex;
    vertex.id = "machine";
    const std::string host = text_of(object, "HostName");
    vertex.name = host.empty() ? "machine" : fmt::format("machine {}", host);
    vertex.bytes = static_cast<int64_t>(object->total_memory);
    return graph_.add(std::move(vertex), -1);
  }

  Graph& graph_;
  DeviceAdder devices_;
};

}  // namespace

Result<Graph> read_graph(const GraphSource& source) {
  HANJI_ASSIGN_OR_RETURN(const Topology topology, load(source));
  Graph graph;
  Walk walk(graph, source);
  walk.visit(hwloc_get_root_obj(topology.get()), -1);
  add_other_networks(graph, source.root);
  const GpuReport gpus = read_gpus(source.nvml);
  add_gpus(graph, gpus);
  graph.gpu_direct = judge_gpu_direct(read_gpu_direct_facts(graph, gpus, source.root));
  return graph;
}

}  // namespace hanji::topology
