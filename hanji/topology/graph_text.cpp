#include "hanji/topology/graph_text.h"

#include <fmt/format.h>

#include "hanji/base/json.h"
#include "hanji/base/units.h"

namespace hanji::topology {
namespace {

std::string rate_text(const Link& link) {
  if (link.bytes_per_second > 0) {
    return fmt::format("{}, {} one way", link.label, format_rate(link.bytes_per_second));
  }
  return fmt::format("{}, rate unknown: {}", link.label, link.unknown);
}

/// Recursion over the tree; `left` draws the branches of all levels above.
void add_tree(const Graph& graph, int vertex, const std::string& left, std::string& text) {
  const std::vector<int> children = children_of(graph, vertex);
  for (size_t index = 0; index < children.size(); ++index) {
    const bool is_last = index + 1 == children.size();
    const int child = children[index];
    text += fmt::format("{}+- {}", left, describe(graph.vertices[child]));
    const Link* link = link_above(graph, child);
    if (link->kind == LinkKind::kPcie) text += fmt::format("  <{}>", rate_text(*link));
    text += "\n";
    add_tree(graph, child, left + (is_last ? "   " : "|  "), text);
  }
}

base::Json facts_json(const std::vector<Fact>& facts, bool known) {
  base::Json all = base::Json::object();
  for (const Fact& fact : facts) {
    if (fact.known == known) all[fact.name] = fact.value;
  }
  return all;
}

base::Json vertex_json(const Graph& graph, int index) {
  const Vertex& vertex = graph.vertices[index];
  const int parent = parent_of(graph, index);
  base::Json json = {{"id", vertex.id}, {"kind", name_of(vertex.kind)}, {"name", vertex.name}};
  json["parent"] = parent < 0 ? base::Json() : base::Json(graph.vertices[parent].id);
  json["cpus"] = vertex.cpus;
  json["bytes"] = vertex.bytes > 0 ? base::Json(vertex.bytes) : base::Json();
  json["bus_id"] = vertex.bus_id.empty() ? base::Json() : base::Json(vertex.bus_id);
  json["facts"] = facts_json(vertex.facts, true);
  json["unknown"] = facts_json(vertex.facts, false);
  return json;
}

base::Json link_json(const Graph& graph, const Link& link) {
  base::Json json = {{"from", graph.vertices[link.from].id},
                     {"to", graph.vertices[link.to].id},
                     {"kind", name_of(link.kind)},
                     {"label", link.label}};
  const bool is_known = link.bytes_per_second > 0;
  json["bytes_per_second"] = is_known ? base::Json(link.bytes_per_second) : base::Json();
  json["unknown"] = link.unknown;
  return json;
}

}  // namespace

std::string describe(const Vertex& vertex) {
  std::string line = vertex.name;
  if (vertex.bytes > 0) line += fmt::format(", {}", base::format_bytes(vertex.bytes));
  if (!vertex.cpus.empty()) {
    line += fmt::format(", CPU{} {}", vertex.cpus.size() > 1 ? "s" : "", format_cpus(vertex.cpus));
  }
  for (const Fact& fact : vertex.facts) {
    line += fmt::format(", {}{} {}", fact.name, fact.known ? "" : " unknown:", fact.value);
  }
  return line;
}

std::string graph_text(const Graph& graph) {
  if (graph.vertices.empty()) return "an empty graph\n";
  std::string text = describe(graph.vertices[0]) + "\n";
  add_tree(graph, 0, "", text);
  for (const Link& link : graph.links) {
    if (link.kind != LinkKind::kNvlink) continue;
    text += fmt::format("\n{} - {}: {}", graph.vertices[link.from].id, graph.vertices[link.to].id,
                        rate_text(link));
  }
  text += "\n";
  for (const Capability& one : graph.gpu_direct) {
    text += fmt::format("GPUDirect {:<8} {}: {}\n", one.name, name_of(one.verdict), one.reason);
  }
  for (const Fact& note : graph.notes) {
    text += fmt::format("{:<18} {}{}\n", note.name, note.known ? "" : "unknown: ", note.value);
  }
  return text + "GB = 10^9 bytes\n";
}

std::string graph_json(const Graph& graph, const CoreRates* measured, const base::Json& gpu) {
  base::Json json = {{"vertices", base::Json::array()}, {"links", base::Json::array()}};
  for (size_t index = 0; index < graph.vertices.size(); ++index) {
    json["vertices"].push_back(vertex_json(graph, static_cast<int>(index)));
  }
  for (const Link& link : graph.links) json["links"].push_back(link_json(graph, link));
  json["gpu_direct"] = base::Json::array();
  for (const Capability& one : graph.gpu_direct) {
    json["gpu_direct"].push_back(
        {{"kind", one.name}, {"verdict", name_of(one.verdict)}, {"reason", one.reason}});
  }
  json["notes"] = facts_json(graph.notes, true);
  json["unknown"] = facts_json(graph.notes, false);
  json["measured"] =
      measured == nullptr ? base::Json() : base::Json::parse(core_rates_json(*measured));
  json["measured_gpu"] = gpu;
  return base::dump(json, 1) + "\n";
}

}  // namespace hanji::topology
