#pragma once

#include "hanji/comm/group.h"
#include "hanji/launch/hosts.h"
#include "hanji/world/connect.h"

namespace hanji::world {

/// The group of all ranks of all hosts, over `local`, the ranks of this one.
///
/// Errors  throws Error: kUnsupported for an engine between hosts that this build has not, kTimeout
///         where they do not connect within the deadline.
comm::Group join_hosts(comm::Group local, const launch::Hosts& hosts, const ConnectOptions& options,
                       comm::GroupOptions group);

}  // namespace hanji::world
