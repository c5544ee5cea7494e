#pragma once

#include <chrono>
#include <string>

#include "hanji/base/tcp.h"
#include "hanji/launch/control_plane/token.h"

namespace hanji::launch {

/// What one host's launcher must know to start its ranks of a run on several hosts. All hosts'
/// launchers get the same, but for `node` and `interface`.
struct MultiHost {
  int num_nodes = 1;
  int node = 0;               ///< Whose launcher this is; that of node 0 serves the control plane.
  base::HostPort rendezvous;  ///< An address of node 0.
  Token token{};
  std::string interface;  ///< Name or address; empty: that of the route to the rendezvous.
  std::chrono::milliseconds join_time{300'000};  ///< For all hosts to come.
  std::chrono::milliseconds silence{15'000};     ///< Then a host that says nothing is lost.
  /// A descriptor whose lines "INT", "TERM", "HUP" and so on are signals to this run and whose end means
  /// that who started the launcher is gone; -1: none.
  int lifeline = -1;
};

}  // namespace hanji::launch
