#include "hanji/topology/rank_order.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <map>
#include <numeric>

#include "hanji/base/json.h"

namespace hanji::topology {
namespace {

Status refuse(std::string_view what) {
  return base::corrupt(
      fmt::format("topology: {}; write one with `hanji topo --json`, or a list of several", what));
}

std::string text_of(const base::Json& json, const char* name) {
  const auto found = json.find(name);
  return found != json.end() && found->is_string() ? found->get<std::string>() : "";
}

Result<Vertex> read_vertex(const base::Json& json) {
  Vertex vertex;
  if (!json.is_object()) return refuse("a vertex is no object");
  vertex.id = text_of(json, "id");
  vertex.name = text_of(json, "name");
  vertex.bus_id = text_of(json, "bus_id");
  const std::string kind = text_of(json, "kind");
  bool known = false;
  for (int i = 0; i <= static_cast<int>(VertexKind::kNvswitch); ++i) {
    if (name_of(static_cast<VertexKind>(i)) != kind) continue;
    vertex.kind = static_cast<VertexKind>(i);
    known = true;
  }
  if (vertex.id.empty() || !known) return refuse("a vertex has no id, or a kind unknown here");
  if (const auto cpus = json.find("cpus"); cpus != json.end() && cpus->is_array()) {
    for (const base::Json& cpu : *cpus) {
      if (!cpu.is_number_integer()) return refuse(vertex.id + " has a CPU that is no number");
      vertex.cpus.push_back(cpu.get<int>());
    }
  }
  return vertex;
}

Result<Graph> read_host(const base::Json& json) {
  const auto vertices = json.is_object() ? json.find("vertices") : json.end();
  if (vertices == json.end() || !vertices->is_array() || vertices->empty()) {
    return refuse("a host has no vertices");
  }
  Graph graph;
  std::map<std::string, int> index_of;
  for (const base::Json& one : *vertices) {
    HANJI_ASSIGN_OR_RETURN(Vertex vertex, read_vertex(one));
    const std::string id = vertex.id;
    const std::string parent = text_of(one, "parent");
    const auto above = index_of.find(parent);
    if (!index_of.empty() && above == index_of.end()) {
      return refuse(id + " comes before its parent, or has none");
    }
    if (!index_of.emplace(id, static_cast<int>(index_of.size())).second) {
      return refuse(id + " is there twice");
    }
    graph.add(std::move(vertex), above == index_of.end() ? -1 : above->second);
  }
  return graph;
}

// Indices of the vertices that a rank can have, in the order in which ranks get them.
std::vector<int> devices_of(const Graph& graph) {
  const auto of_kind = [&](VertexKind kind) {
    std::vector<int> found;
    for (size_t i = 0; i < graph.vertices.size(); ++i) {
      if (graph.vertices[i].kind == kind) found.push_back(static_cast<int>(i));
    }
    return found;
  };
  std::vector<int> gpus = of_kind(VertexKind::kGpu);
  if (!gpus.empty()) {
    std::ranges::stable_sort(gpus, {}, [&](int i) { return graph.vertices[i].bus_id; });
    return gpus;
  }
  std::vector<int> cores = of_kind(VertexKind::kCore);
  std::ranges::stable_sort(cores, {}, [&](int i) {
    const auto& cpus = graph.vertices[i].cpus;
    return cpus.empty() ? -1 : *std::ranges::min_element(cpus);
  });
  return cores;
}

// The NUMA node that has a CPU of the core; nodes stand beside caches in the tree, not above cores.
std::string node_of(const Graph& graph, const Vertex& core) {
  for (const Vertex& vertex : graph.vertices) {
    if (vertex.kind != VertexKind::kMemory) continue;
    for (const int cpu : core.cpus) {
      if (std::ranges::find(vertex.cpus, cpu) != vertex.cpus.end()) return vertex.id;
    }
  }
  return "";
}

RankPath path_of(const Graph& graph, int device, size_t host) {
  RankPath path;
  for (int at = parent_of(graph, device); at > 0; at = parent_of(graph, at)) {
    path.insert(path.begin(), graph.vertices[at].id);
  }
  const std::string node = node_of(graph, graph.vertices[device]);
  if (!node.empty()) {
    const bool has_package = !path.empty() && path[0].starts_with("package");
    path.insert(path.begin() + (has_package ? 1 : 0), node);
  }
  path.insert(path.begin(), fmt::format("host:{}", host));
  return path;
}

std::string kind_of(const std::string& id) { return id.substr(0, id.find(':')); }

// How much of two paths is the same.
size_t common_depth(const RankPath& a, const RankPath& b) {
  const size_t most = std::min(a.size(), b.size());
  size_t depth = 0;
  while (depth < most && a[depth] == b[depth]) ++depth;
  return depth;
}

// Links of the ring that leave a part at this depth.
int crossings_at(const std::vector<RankPath>& paths, const std::vector<int>& ring, size_t depth) {
  int count = 0;
  for (size_t i = 0; i < ring.size(); ++i) {
    const RankPath& a = paths[ring[i]];
    const RankPath& b = paths[ring[(i + 1) % ring.size()]];
    count += ring.size() > 1 && common_depth(a, b) <= depth && std::max(a.size(), b.size()) > depth;
  }
  return count;
}

// Appends ranks, which share `depth` parts, part by part.
void walk(const std::vector<RankPath>& paths, const std::vector<int>& ranks, size_t depth,
          std::vector<int>& order) {
  std::vector<std::string> seen;
  for (const int first : ranks) {
    if (paths[first].size() <= depth) {
      order.push_back(first);
      continue;
    }
    const std::string& part = paths[first][depth];
    if (std::ranges::find(seen, part) != seen.end()) continue;
    seen.push_back(part);
    std::vector<int> inside;
    std::ranges::copy_if(ranks, std::back_inserter(inside), [&](int rank) {
      return paths[rank].size() > depth && paths[rank][depth] == part;
    });
    walk(paths, inside, depth + 1, order);
  }
}

// "0->2; 0->1, 2->3": a binomial tree over the positions.
std::string tree_text(const std::vector<int>& order) {
  const auto ranks = static_cast<int>(order.size());
  std::string text;
  for (int distance = static_cast<int>(std::bit_ceil(static_cast<unsigned>(ranks))) / 2;
       distance > 0; distance /= 2) {
    std::vector<std::string> sends;
    for (int from = 0; from + distance < ranks; from += 2 * distance) {
      sends.push_back(fmt::format("{}->{}", order[from], order[from + distance]));
    }
    if (!sends.empty()) {
      text += fmt::format("{}{}", text.empty() ? "" : "; ", fmt::join(sends, ", "));
    }
  }
  return text;
}

}  // namespace

Result<std::vector<Graph>> graphs_from_json(std::string_view text) {
  HANJI_ASSIGN_OR_RETURN(const base::Json json, base::parse_json(text));
  std::vector<Graph> hosts;
  if (!json.is_array()) {
    HANJI_ASSIGN_OR_RETURN(Graph graph, read_host(json));
    hosts.push_back(std::move(graph));
    return hosts;
  }
  for (const base::Json& one : json) {
    HANJI_ASSIGN_OR_RETURN(Graph graph, read_host(one));
    hosts.push_back(std::move(graph));
  }
  if (hosts.empty()) return refuse("the list of hosts is empty");
  return hosts;
}

Result<std::vector<RankPath>> rank_paths(const std::vector<Graph>& hosts, int ranks) {
  std::vector<RankPath> paths;
  for (size_t host = 0; host < hosts.size(); ++host) {
    for (const int device : devices_of(hosts[host])) {
      paths.push_back(path_of(hosts[host], device, host));
    }
  }
  if (ranks < 1 || static_cast<size_t>(ranks) > paths.size()) {
    return base::invalid_argument(
        fmt::format("{} ranks on {} devices of the topology; ask for 1 to {}", ranks, paths.size(),
                    paths.size()));
  }
  paths.resize(static_cast<size_t>(ranks));
  return paths;
}

RankOrder order_ranks(const std::vector<RankPath>& paths) {
  std::vector<int> by_rank(paths.size());
  std::iota(by_rank.begin(), by_rank.end(), 0);
  RankOrder order;
  walk(paths, by_rank, 0, order.ranks);
  size_t deepest = 0;
  for (const RankPath& path : paths) deepest = std::max(deepest, path.size());
  for (size_t depth = 0; depth < deepest; ++depth) {
    const int before = crossings_at(paths, by_rank, depth);
    if (before == 0) continue;
    const auto named =
        std::ranges::find_if(paths, [&](const RankPath& path) { return path.size() > depth; });
    const int after = crossings_at(paths, order.ranks, depth);
    const bool is_news = order.crossings.empty() || order.crossings.back().by_rank != before ||
                         order.crossings.back().by_order != after;
    if (is_news) order.crossings.push_back({kind_of((*named)[depth]), before, after});
  }
  return order;
}

std::string to_text(const RankOrder& order) {
  std::string text = fmt::format("ring {}\n", fmt::join(order.ranks, " "));
  for (const auto& one : order.crossings) {
    text += fmt::format("  links between parts, {}: {}, by rank {}\n", one.kind, one.by_order,
                        one.by_rank);
  }
  return text + fmt::format("tree {}\n", tree_text(order.ranks));
}

}  // namespace hanji::topology
