#include "hanji/launch/hosts.h"

#include <fmt/format.h>

#include <algorithm>

#include "hanji/base/version.h"
#include "hanji/launch/internal/hosts_file.h"
#include "hanji/launch/internal/verdict.h"

namespace hanji::launch {
namespace {

/// Under a launcher of ours the launcher notifies, once it knows how the rank ended.
bool notifies(const Hosts& hosts) { return hosts.store != nullptr && hosts.notifies_failures; }

}  // namespace

int Hosts::node_of(int any_rank) const {
  const auto after =
      std::upper_bound(nodes.begin(), nodes.end(), any_rank,
                       [](int rank, const Node& node) { return rank < node.first_rank; });
  return static_cast<int>(after - nodes.begin()) - 1;
}

Result<Hosts> join_hosts(const Inherited& inherited, base::Deadline deadline) {
  Hosts hosts;
  hosts.local_rank = inherited.endpoints.rank;
  if (inherited.hosts_json.empty()) {
    hosts.rank = inherited.endpoints.rank;
    hosts.world_size = inherited.endpoints.size;
    hosts.nodes = {{base::host_name(), "", 0, inherited.endpoints.size}};
    return hosts;
  }
  HANJI_ASSIGN_OR_RETURN(HostsFile file, parse_hosts_file(inherited.hosts_json));
  hosts.node = file.node;
  hosts.nodes = std::move(file.nodes);
  hosts.world_size = hosts.nodes.back().first_rank + hosts.nodes.back().num_ranks;
  hosts.rank = hosts.here().first_rank + hosts.local_rank;
  StoreOptions options;
  options.server = file.server;
  options.token = file.token;
  options.index = hosts.rank;
  options.world_size = hosts.world_size;
  options.num_nodes = hosts.num_nodes();
  options.build_id = base::build_id();
  options.source = file.source;
  options.deadline = deadline;
  options.silence = file.silence;
  HANJI_ASSIGN_OR_RETURN(hosts.store, Store::connect(std::move(options)));
  return hosts;
}

void notify_hosts(const Hosts& hosts, const std::string& verdict) {
  if (!notifies(hosts)) return;
  // A store that is lost has told everybody that this host is.
  static_cast<void>(hosts.store->compare_set(kVerdictKey, "", to_json({hosts.node, 6, verdict})));
}

void propose_to_hosts(const Hosts& hosts, const std::string& verdict) {
  if (notifies(hosts)) hosts.store->propose(kVerdictKey, to_json({hosts.node, 6, verdict}));
}

}  // namespace hanji::launch
