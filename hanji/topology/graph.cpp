#include "hanji/topology/graph.h"

#include <fmt/format.h>

#include <algorithm>

namespace hanji::topology {

int Graph::add(Vertex vertex, int parent, Link link) {
  vertices.push_back(std::move(vertex));
  const int index = static_cast<int>(vertices.size()) - 1;
  if (parent >= 0) {
    link.from = parent;
    link.to = index;
    links.push_back(std::move(link));
  }
  return index;
}

std::string_view name_of(VertexKind kind) {
  switch (kind) {
    case VertexKind::kMachine: return "machine";
    case VertexKind::kPackage: return "package";
    case VertexKind::kMemory: return "memory";
    case VertexKind::kCache: return "cache";
    case VertexKind::kCore: return "core";
    case VertexKind::kBridge: return "bridge";
    case VertexKind::kGpu: return "gpu";
    case VertexKind::kNic: return "nic";
    case VertexKind::kDisk: return "disk";
    case VertexKind::kNvswitch: return "nvswitch";
  }
  return "unknown";
}

std::string_view name_of(LinkKind kind) {
  switch (kind) {
    case LinkKind::kInside: return "inside";
    case LinkKind::kPcie: return "pcie";
    case LinkKind::kNvlink: return "nvlink";
  }
  return "unknown";
}

std::string_view name_of(Verdict verdict) {
  switch (verdict) {
    case Verdict::kPossible: return "possible";
    case Verdict::kImpossible: return "impossible";
    case Verdict::kUnknown: return "unknown";
  }
  return "unknown";
}

std::vector<int> children_of(const Graph& graph, int vertex) {
  std::vector<int> children;
  for (const Link& link : graph.links) {
    if (link.kind != LinkKind::kNvlink && link.from == vertex) children.push_back(link.to);
  }
  return children;
}

const Link* link_above(const Graph& graph, int vertex) {
  for (const Link& link : graph.links) {
    if (link.kind != LinkKind::kNvlink && link.to == vertex) return &link;
  }
  return nullptr;
}

int parent_of(const Graph& graph, int vertex) {
  const Link* link = link_above(graph, vertex);
  return link == nullptr ? -1 : link->from;
}

int ancestor_of(const Graph& graph, int vertex, VertexKind kind) {
  while (vertex >= 0 && graph.vertices[vertex].kind != kind) vertex = parent_of(graph, vertex);
  return vertex;
}

int find_bus_id(const Graph& graph, std::string_view bus_id) {
  if (bus_id.empty()) return -1;
  const auto found = std::ranges::find(graph.vertices, bus_id, &Vertex::bus_id);
  return found == graph.vertices.end() ? -1 : static_cast<int>(found - graph.vertices.begin());
}

std::string format_cpus(const std::vector<int>& cpus) {
  std::string text;
  for (size_t begin = 0; begin < cpus.size();) {
    size_t end = begin + 1;
    while (end < cpus.size() && cpus[end] == cpus[end - 1] + 1) ++end;
    text += fmt::format("{}{}", text.empty() ? "" : ",", cpus[begin]);
    if (end - begin > 1) text += fmt::format("-{}", cpus[end - 1]);
    begin = end;
  }
  return text;
}

std::string format_rate(double bytes_per_second) {
  const double gigabytes = bytes_per_second * 1e-9;
  const int digits = gigabytes >= 99.95 ? 0 : gigabytes >= 9.995 ? 1 : gigabytes >= 0.9995 ? 2 : 3;
  return fmt::format("{:.{}f} GB/s", gigabytes, digits);
}

}  // namespace hanji::topology
