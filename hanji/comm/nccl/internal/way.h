#pragma once

#include "hanji/comm/nccl/internal/connect.h"

namespace hanji::comm::nccl {

/// What carries messages from one rank of `meet` to another: a communicator and a stream of the
/// two, so that no message waits on the device for a collective or for a message of another way.
///
/// The two connect on a thread of their own while the caller goes on: ranks begin their ways in
/// different orders, and NCCL connects no sooner than both have come. Their descriptions travel
/// over the channel that `meet` has for the same direction, so those of two ways never meet.
/// Errors  throws Error as Group::subgroup() of two would.
Parts connect_way(const Ground& ground, int sender, int receiver, const Group& meet);

/// Finds or opens the ways of a group; null where `meet` carries no messages.
GroupState::Connect make_ways(const Ground& ground, const Group& meet, const GroupOptions& options,
                              const std::shared_ptr<GroupFamily>& family);

}  // namespace hanji::comm::nccl
