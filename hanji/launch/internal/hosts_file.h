#pragma once

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include "hanji/base/tcp.h"
#include "hanji/launch/control_plane/token.h"
#include "hanji/launch/hosts.h"

namespace hanji::launch {

/// What a launcher hands its ranks in sealed memory, so that they reach those of other hosts.
struct HostsFile {
  base::HostPort server;
  Token token{};
  std::string source;  ///< Own address to connect from; empty: the route decides.
  std::chrono::milliseconds silence{15'000};
  int node = 0;
  std::vector<Node> nodes;
};

std::string to_json(const HostsFile& file);
/// Errors  kCorrupt for anything that to_json() does not write.
Result<HostsFile> parse_hosts_file(std::string_view json);

/// One host as JSON and back; kCorrupt.
std::string to_json(const Node& node);
Result<Node> parse_node(std::string_view json);

}  // namespace hanji::launch
