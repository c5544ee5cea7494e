#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>

#include "hanji/comm/group.h"
#include "hanji/comm/hierarchical/host_map.h"

namespace hanji::comm::hierarchical {

/// Whom one rank works with.
struct Peers {
  HostMap hosts;
  int rank = 0;
  Group local;  ///< The ranks of this host, by rail. Nobody else uses it.
  /// The ranks of this rail, by host; none on ranks beyond the rails.
  std::optional<Group> rail_peers;
  std::string between;  ///< The engine between hosts.
  /// Connects all ranks by that engine; called by all of them. Nobody else uses the group.
  std::function<Group()> join_all;

  /// What a call of `group` has of a call's own deadline: between hosts twice as long, since the
  /// whole group's comes first, which knows more. 0 stays 0.
  std::chrono::nanoseconds deadline_in(const Group& group, std::chrono::nanoseconds own) const {
    return &group == &local ? own : 2 * own;
  }
};

}  // namespace hanji::comm::hierarchical
