#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace hanji::topology {

enum class VertexKind {
  kMachine,
  kPackage,
  kMemory,  ///< A NUMA node.
  kCache,   ///< A last-level cache.
  kCore,    ///< With the logical CPUs that it runs.
  kBridge,  ///< From the processor to PCI, or from PCI to PCI.
  kGpu,
  kNic,  ///< Ethernet, InfiniBand, or a network without a device (loopback, tunnels).
  kDisk,
  kNvswitch,
};

/// Something that was looked for: its value, or the reason why it is not known.
struct Fact {
  std::string name{};
  std::string value{};
  bool known = true;
  bool operator==(const Fact&) const = default;
};

struct Vertex {
  std::string id{};  ///< Unique in its graph, e.g. "core:3", "gpu:0000:3b:00.0", "nic:eth0".
  VertexKind kind = VertexKind::kMachine;
  std::string name{};  ///< For people.
  std::vector<int>
      cpus{};            ///< Logical CPUs: of a core, or those that a memory or cache is next to.
  int64_t bytes = 0;     ///< Of a memory or cache; 0: none.
  std::string bus_id{};  ///< Of a PCI device: "0000:3b:00.0".
  int pci_vendor = 0;    ///< Of a PCI device: 0x10de is NVIDIA.
  std::vector<Fact> facts{};
};

enum class LinkKind { kInside, kPcie, kNvlink };

/// An edge. kInside and kPcie lead from a parent to its child and form a tree; kNvlink crosses it.
struct Link {
  int from = 0;  ///< Index in Graph::vertices.
  int to = 0;
  LinkKind kind = LinkKind::kInside;
  std::string label{};          ///< E.g. "PCIe 5 x16", "NVLink 4 x18".
  double bytes_per_second = 0;  ///< Nominal, one way; 0: not known, or kInside.
  std::string unknown{};        ///< Why the rate is not known.
};

enum class Verdict { kPossible, kImpossible, kUnknown };

/// Whether something can be done here, and why.
struct Capability {
  std::string name{};
  Verdict verdict = Verdict::kUnknown;
  std::string reason{};
};

/// A host as a value: parts and what joins them.
///
/// Order   vertices in pre-order of the tree, the machine first.
struct Graph {
  std::vector<Vertex> vertices{};
  std::vector<Link> links{};
  std::vector<Capability> gpu_direct{};
  std::vector<Fact> notes{};  ///< About the host as a whole.

  /// Adds a vertex below `parent` (none for the machine itself).
  /// Result  its index.
  int add(Vertex vertex, int parent, Link link = {});
};

std::string_view name_of(VertexKind kind);
std::string_view name_of(LinkKind kind);
std::string_view name_of(Verdict verdict);

/// Indices of the children in the tree, in order.
std::vector<int> children_of(const Graph& graph, int vertex);
/// The parent in the tree; -1 for the root.
int parent_of(const Graph& graph, int vertex);
/// The link from the parent; nullptr for the root.
const Link* link_above(const Graph& graph, int vertex);
/// The nearest vertex of that kind on the way up, itself included; -1: none.
int ancestor_of(const Graph& graph, int vertex, VertexKind kind);
/// The vertex of a PCI device; -1: none.
int find_bus_id(const Graph& graph, std::string_view bus_id);

/// "0-3,8" from rising CPU numbers.
std::string format_cpus(const std::vector<int>& cpus);
/// "31.5 GB/s" (GB = 10^9 bytes), three digits.
std::string format_rate(double bytes_per_second);

}  // namespace hanji::topology
