#include "hanji/launch/internal/hosts_file.h"

#include "hanji/base/json.h"

namespace hanji::launch {
namespace {

using base::Json;

Json json_of(const Node& node) {
  return {{"name", node.name},
          {"address", node.address},
          {"first_rank", node.first_rank},
          {"num_ranks", node.num_ranks}};
}

bool has_text(const Json& json, const char* key) {
  return json.is_object() && json.contains(key) && json[key].is_string();
}

bool has_integer(const Json& json, const char* key) {
  return json.is_object() && json.contains(key) && json[key].is_number_integer();
}

Status foreign(const char* what) {
  return base::corrupt(std::string(what) + " that no launcher of ours writes");
}

Result<Node> node_in(const Json& json) {
  const bool whole = has_text(json, "name") && has_text(json, "address") &&
                     has_integer(json, "first_rank") && has_integer(json, "num_ranks");
  if (!whole) return foreign("a host");
  Node node{json["name"].get<std::string>(), json["address"].get<std::string>(),
            json["first_rank"].get<int>(), json["num_ranks"].get<int>()};
  if (node.first_rank < 0 || node.num_ranks < 1) return foreign("a number of ranks");
  return node;
}

}  // namespace

std::string to_json(const Node& node) { return base::dump(json_of(node)); }

Result<Node> parse_node(std::string_view text) {
  HANJI_ASSIGN_OR_RETURN(const Json json, base::parse_json(text, 4));
  return node_in(json);
}

std::string to_json(const HostsFile& file) {
  Json json = {{"server", base::to_text(file.server)},
               {"token", to_text(file.token)},
               {"source", file.source},
               {"silence_ms", file.silence.count()},
               {"node", file.node},
               {"nodes", Json::array()}};
  for (const Node& node : file.nodes) json["nodes"].push_back(json_of(node));
  return base::dump(json);
}

Result<HostsFile> parse_hosts_file(std::string_view text) {
  HANJI_ASSIGN_OR_RETURN(const Json json, base::parse_json(text, 4));
  const bool whole = has_text(json, "server") && has_text(json, "token") &&
                     has_text(json, "source") && has_integer(json, "silence_ms") &&
                     has_integer(json, "node") && json.contains("nodes") &&
                     json["nodes"].is_array();
  if (!whole) return foreign("a list of hosts");
  HostsFile file;
  HANJI_ASSIGN_OR_RETURN(file.server, base::parse_host_port(json["server"].get<std::string>()));
  HANJI_ASSIGN_OR_RETURN(file.token, parse_token(json["token"].get<std::string>()));
  file.source = json["source"].get<std::string>();
  file.silence = std::chrono::milliseconds(json["silence_ms"].get<int64_t>());
  file.node = json["node"].get<int>();
  for (const Json& one : json["nodes"]) {
    HANJI_ASSIGN_OR_RETURN(Node node, node_in(one));
    file.nodes.push_back(std::move(node));
  }
  if (file.node < 0 || file.node >= static_cast<int>(file.nodes.size())) return foreign("a node");
  return file;
}

}  // namespace hanji::launch
