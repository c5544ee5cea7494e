#pragma once

#include <memory>
#include <optional>
#include <string>

#include "hanji/comm/group.h"
#include "hanji/launch/inherited.h"
#include "hanji/shm/liveness.h"
#include "hanji/shm/segment.h"
#include "hanji/trace/recorder.h"
#include "hanji/world/connect.h"

namespace hanji::world {

/// In the order of construction; destroyed in reverse, so the watchdog outlives the group.
struct WorldState {
  shm::Endpoints endpoints;  ///< What is left of them: the control socket, rank, size.
  std::string plan_json;
  std::shared_ptr<shm::Segment> segment;
  trace::Recorder recorder;
  std::unique_ptr<shm::Watchdog> watchdog;
  std::optional<comm::Group> group;
  int exceptions_before = 0;  ///< In flight when the world was made.
};

/// Takes this rank's place in a segment.
World enter(std::shared_ptr<shm::Segment> segment, shm::Endpoints endpoints, std::string plan_json,
            const ConnectOptions& options);

/// The same from what a launcher of ours left.
World enter(launch::Inherited inherited, const ConnectOptions& options);

}  // namespace hanji::world
