#pragma once

#include <memory>
#include <optional>
#include <string>

#include "hanji/base/exception.h"
#include "hanji/comm/group.h"
#include "hanji/launch/hosts.h"
#include "hanji/launch/inherited.h"
#include "hanji/shm/liveness.h"
#include "hanji/shm/segment.h"
#include "hanji/trace/recorder.h"
#include "hanji/world/connect.h"

namespace hanji::world {

/// In the order of construction; destroyed in reverse, so the watchdog outlives the group.
struct WorldState {
  launch::Hosts hosts;
  shm::Endpoints endpoints;  ///< What is left of them: the control socket, rank, size on this host.
  std::string plan_json;
  std::shared_ptr<shm::Segment> segment;
  trace::Recorder recorder;
  std::unique_ptr<shm::Watchdog> watchdog;
  std::optional<comm::Group> group;
  int exceptions_before = 0;  ///< In flight when the world was made.
  std::optional<base::UncaughtReport> uncaught = {};
};

/// World::fail().
void fail(const WorldState& state, const Status& status);

/// This rank's place in a segment and among all hosts.
struct Place {
  std::shared_ptr<shm::Segment> segment;
  shm::Endpoints endpoints;
  launch::Hosts hosts;
  std::string plan_json;
  bool alone_in_process = true;  ///< False: one thread takes the places of all ranks in turn.
  int launcher = 0;  ///< The process of another launcher that this rank must not outlive; 0: none.
};

/// From what a launcher left, as if this host were the only one.
Place attach(launch::Inherited inherited);

/// Takes the place.
World enter(Place place, const ConnectOptions& options);

}  // namespace hanji::world
