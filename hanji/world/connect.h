#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "hanji/comm/group.h"
#include "hanji/world/world.h"

namespace hanji::launch {
struct Identity;
}
namespace hanji::shm {
struct LivenessEvent;
}

namespace hanji::world {

struct ConnectOptions {
  comm::GroupOptions group;  ///< Of all ranks; its recorder is filled in.
  /// May change the group's options once the plan is known, e.g. its deadline or its chooser.
  std::function<void(const std::string& plan_json, comm::GroupOptions&)> configure;
  std::chrono::nanoseconds meet_deadline = std::chrono::seconds(60);
  /// Where there are several hosts: what joins them, and for Gloo on which network of this host, a
  /// name or an address; empty: the one that leads to the rendezvous.
  HostEngine between_hosts = HostEngine::kGloo;
  std::string interface;
  /// Told on a thread of its own when a peer dies, stops or goes on; must not block.
  std::function<void(const shm::LivenessEvent&)> on_liveness;

  // Where hanji did not start the ranks; else the launcher has decided.
  std::string plan_json;                          ///< Must be the same on all ranks.
  size_t heap_bytes_per_rank = size_t{64} << 30;  ///< Addresses; memory comes on demand.
  uint32_t trace_events = 1 << 16;
};

/// Connects this process to the ranks of its job, by what `hanji run`, `hanji train`, torchrun, mpirun
/// or srun left for it: to the ranks of its host by shared memory, and to other hosts by
/// `ConnectOptions::between_hosts`. Without a launcher, returns a world of size 1.
///
/// Calls inside a host are chosen by the costs that `hanji bench --fit` has measured for as many
/// ranks on this machine, if they are fresh, unless the options name a chooser.
///
/// Cost    milliseconds once all ranks are there.
/// Errors  throws Error: kInvalidArgument for variables that contradict each other, kTimeout naming
///         the ranks that did not come, kMismatch if builds or plans differ, kUnsupported for
///         an engine between hosts that this build or this launcher has not.
/// Thread  once per process.
World connect(const ConnectOptions& options = {});

/// The same where the caller knows who it is: its job id is known to the ranks of this meeting and
/// to nobody else on the host. Environment variables are not looked at.
///
/// Errors  as connect(); kUnsupported for ranks of several hosts.
/// Thread  any number of worlds per process; each meeting needs a job id of its own.
World connect_as(const launch::Identity& identity, const ConnectOptions& options = {});

}  // namespace hanji::world

namespace hanji {
using world::connect;
using world::World;
}  // namespace hanji
