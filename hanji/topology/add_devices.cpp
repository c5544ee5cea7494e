#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "hanji/topology/internal/add_devices.h"
#include "hanji/topology/internal/pci.h"
#include "hanji/topology/link_rates.h"

namespace hanji::topology {
namespace {

using PciAttributes = hwloc_obj_attr_u::hwloc_pcidev_attr_s;

std::string bus_id_of(const PciAttributes& pci) {
  return fmt::format("{:04x}:{:02x}:{:02x}.{:x}", pci.domain, pci.bus, pci.dev, pci.func);
}

std::optional<VertexKind> kind_of(const PciAttributes& pci) {
  if (pci.vendor_id == kNvidia && pci.class_id == 0x0680) return VertexKind::kNvswitch;
  if (pci.class_id == 0x0c06) return VertexKind::kNic;  // InfiniBand of old
  switch (pci.class_id >> 8) {
    case 0x01: return VertexKind::kDisk;
    case 0x02: return VertexKind::kNic;
    case 0x03: return VertexKind::kGpu;
    case 0x12: return VertexKind::kGpu;  // processing accelerators
    default: return std::nullopt;
  }
}

const char* word_of(VertexKind kind) {
  switch (kind) {
    case VertexKind::kNvswitch: return "NVSwitch";
    case VertexKind::kNic: return "NIC";
    case VertexKind::kDisk: return "disk";
    default: return "GPU";
  }
}

void add_rate(Vertex& vertex, const std::string& name, const LinkRate& rate) {
  if (rate.bytes_per_second > 0) {
    vertex.facts.push_back(
        {name, fmt::format("{}, {} one way", rate.label, format_rate(rate.bytes_per_second))});
  } else {
    vertex.facts.push_back({name, rate.unknown, false});
  }
}

/// The kernel's rate, or hwloc's (GB/s) where the kernel has none: a file of another host.
Link pcie_link(const std::filesystem::path& root, const std::string& bus_id,
               double hwloc_gigabytes) {
  LinkRate rate = read_pcie_rate(root, bus_id);
  if (rate.bytes_per_second == 0 && hwloc_gigabytes > 0) {
    rate = {.label = "PCIe", .bytes_per_second = hwloc_gigabytes * 1e9};
  }
  return {.kind = LinkKind::kPcie,
          .label = rate.label,
          .bytes_per_second = rate.bytes_per_second,
          .unknown = rate.unknown};
}

}  // namespace

int DeviceAdder::add(hwloc_obj_t object, int parent) {
  if (object->type == HWLOC_OBJ_BRIDGE) return add_bridge(object, parent);
  if (object->type == HWLOC_OBJ_PCI_DEVICE) return add_pci_device(object, parent);
  const VertexKind above = graph_.vertices[parent].kind;
  const bool is_on_device = above == VertexKind::kNic || above == VertexKind::kDisk;
  if (is_on_device) describe_os_device(object, graph_.vertices[parent]);
  return parent;
}

int DeviceAdder::add_bridge(hwloc_obj_t object, int parent) {
  const hwloc_obj_attr_u::hwloc_bridge_attr_s& bridge = object->attr->bridge;
  Vertex vertex;
  vertex.kind = VertexKind::kBridge;
  const std::string buses =
      fmt::format("{:04x}:[{:02x}-{:02x}]", bridge.downstream.pci.domain,
                  bridge.downstream.pci.secondary_bus, bridge.downstream.pci.subordinate_bus);
  if (bridge.upstream_type == HWLOC_OBJ_BRIDGE_HOST) {
    vertex.id = fmt::format("bridge:host:{}", buses);
    vertex.name = fmt::format("PCI root {}", buses);
    return graph_.add(std::move(vertex), parent);
  }
  vertex.bus_id = bus_id_of(bridge.upstream.pci);
  vertex.pci_vendor = bridge.upstream.pci.vendor_id;
  vertex.id = fmt::format("bridge:{}", vertex.bus_id);
  vertex.name = fmt::format("PCI bridge {}", buses);
  const Link link = pcie_link(root_, vertex.bus_id, bridge.upstream.pci.linkspeed);
  return graph_.add(std::move(vertex), parent, link);
}

int DeviceAdder::add_pci_device(hwloc_obj_t object, int parent) {
  const PciAttributes& pci = object->attr->pcidev;
  const auto kind = kind_of(pci);
  if (!kind) return parent;
  Vertex vertex;
  vertex.kind = *kind;
  vertex.bus_id = bus_id_of(pci);
  vertex.pci_vendor = pci.vendor_id;
  vertex.id = fmt::format("{}:{}", name_of(*kind), vertex.bus_id);
  vertex.name = fmt::format("{} {}", word_of(*kind), vertex.bus_id);
  for (const char* info : {"PCIVendor", "PCIDevice"}) {
    const char* value = hwloc_obj_get_info_by_name(object, info);
    if (value != nullptr) vertex.name += fmt::format(" {}", value);
  }
  const Link link = pcie_link(root_, vertex.bus_id, pci.linkspeed);
  return graph_.add(std::move(vertex), parent, link);
}

void DeviceAdder::describe_os_device(hwloc_obj_t object, Vertex& vertex) {
  if (object->name == nullptr) return;
  const std::string name = object->name;
  switch (object->attr->osdev.type) {
    case HWLOC_OBJ_OSDEV_NETWORK: add_rate(vertex, name, read_net_rate(root_, name)); return;
    case HWLOC_OBJ_OSDEV_OPENFABRICS:
      for (const std::string& port :
           names_in_class(root_, fmt::format("infiniband/{}/ports", name))) {
        add_rate(vertex, fmt::format("{}:{}", name, port), read_infiniband_rate(root_, name, port));
      }
      return;
    case HWLOC_OBJ_OSDEV_BLOCK: vertex.facts.push_back({"block device", name}); return;
    default: return;
  }
}

void add_other_networks(Graph& graph, const std::filesystem::path& root) {
  for (const std::string& name : names_in_class(root, "net")) {
    const bool is_shown = std::ranges::any_of(graph.vertices, [&](const Vertex& vertex) {
      return std::ranges::find(vertex.facts, name, &Fact::name) != vertex.facts.end();
    });
    if (is_shown) continue;
    Vertex vertex;
    vertex.kind = VertexKind::kNic;
    vertex.id = fmt::format("nic:{}", name);
    vertex.name = fmt::format("network {} (no device)", name);
    add_rate(vertex, name, read_net_rate(root, name));
    graph.add(std::move(vertex), 0);
  }
}

}  // namespace hanji::topology
