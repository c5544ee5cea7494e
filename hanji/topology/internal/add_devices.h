#pragma once

#include <filesystem>

#include "hanji/topology/graph.h"
#include "hanji/topology/internal/hwloc.h"

namespace hanji::topology {

/// Turns hwloc's I/O objects into vertices: bridges, and devices that carry a run's bytes.
class DeviceAdder {
 public:
  DeviceAdder(Graph& graph, std::filesystem::path root) : graph_(graph), root_(std::move(root)) {}

  /// Result  the object's vertex; the parent for a device that matters to no run.
  int add(hwloc_obj_t object, int parent);

 private:
  int add_bridge(hwloc_obj_t object, int parent);
  int add_pci_device(hwloc_obj_t object, int parent);
  void describe_os_device(hwloc_obj_t object, Vertex& vertex);

  Graph& graph_;
  std::filesystem::path root_;
};

/// Adds the networks of the kernel that hang on no PCI device (loopback, tunnels, bridges).
void add_other_networks(Graph& graph, const std::filesystem::path& root);

}  // namespace hanji::topology
