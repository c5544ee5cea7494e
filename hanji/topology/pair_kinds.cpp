#include "hanji/topology/pair_kinds.h"

#include <algorithm>
#include <array>
#include <optional>

namespace hanji::topology {
namespace {

/// The parts that hold a CPU, as indices of vertices; -1: the graph shows none.
struct Place {
  int cpu = 0;
  int core = -1, cache = -1, memory = -1, package = -1;
};

Place place_of(const Graph& graph, int cpu) {
  Place place{.cpu = cpu};
  for (size_t index = 0; index < graph.vertices.size(); ++index) {
    const Vertex& vertex = graph.vertices[index];
    if (std::ranges::find(vertex.cpus, cpu) == vertex.cpus.end()) continue;
    if (vertex.kind == VertexKind::kCore) place.core = static_cast<int>(index);
    if (vertex.kind == VertexKind::kCache) place.cache = static_cast<int>(index);
    if (vertex.kind == VertexKind::kMemory && place.memory < 0)
      place.memory = static_cast<int>(index);
  }
  place.package = ancestor_of(graph, place.core, VertexKind::kPackage);
  return place;
}

PairKind kind_of(const Place& a, const Place& b) {
  if (a.core >= 0 && a.core == b.core) return PairKind::kSameCore;
  if (a.cache >= 0 && a.cache == b.cache) return PairKind::kSameCache;
  if (a.package != b.package) return PairKind::kOtherPackage;
  return a.memory == b.memory ? PairKind::kSameNuma : PairKind::kOtherNuma;
}

}  // namespace

std::string_view name_of(PairKind kind) {
  switch (kind) {
    case PairKind::kSameCore: return "same core";
    case PairKind::kSameCache: return "same cache";
    case PairKind::kSameNuma: return "same NUMA node";
    case PairKind::kOtherNuma: return "other NUMA node";
    case PairKind::kOtherPackage: return "other package";
  }
  return "unknown";
}

std::vector<CpuPair> representative_pairs(const Graph& graph, const std::vector<int>& cpus) {
  std::vector<Place> places;
  for (const int cpu : cpus) places.push_back(place_of(graph, cpu));
  std::array<std::optional<CpuPair>, 5> found;
  for (size_t first = 0; first < places.size(); ++first) {
    for (size_t second = first + 1; second < places.size(); ++second) {
      const PairKind kind = kind_of(places[first], places[second]);
      auto& pair = found[static_cast<size_t>(kind)];
      if (!pair) pair = CpuPair{kind, places[first].cpu, places[second].cpu};
    }
  }
  std::vector<CpuPair> pairs;
  for (const auto& pair : found) {
    if (pair) pairs.push_back(*pair);
  }
  return pairs;
}

std::vector<int> copy_counts(int num_cores) {
  std::vector<int> counts;
  for (int count = 1; count < num_cores; count = num_cores <= 8 ? count + 1 : count * 2) {
    counts.push_back(count);
  }
  if (num_cores > 0) counts.push_back(num_cores);
  return counts;
}

}  // namespace hanji::topology
