#pragma once

#include <functional>
#include <memory>

#include "hanji/shm/call.h"
#include "hanji/shm/segment.h"

namespace hanji::bench {

/// Does a call, start to end.
using Side = std::function<Status(const shm::Call&)>;

/// In the group of ranks 0 and 1 with this id.
Side make_checked(const std::shared_ptr<shm::Segment>& segment, int group, int rank);
Side make_unchecked(const std::shared_ptr<shm::Segment>& segment, int group, int rank);

}  // namespace hanji::bench
