#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "hanji/shm/internal/hang_waits.h"
#include "hanji/shm/snapshot.h"

/// The words of a verdict: who, where, since when, in half sentences.
namespace hanji::shm::internal {

/// "rank 1", "ranks 0, 2 and 3".
std::string list_ranks(const std::vector<int>& ranks);
/// "ranks 2-3 on host b", "2 ranks on other hosts".
std::string describe_other_hosts(const Snapshot& snapshot);
std::string plural(const std::vector<int>& ranks, std::string_view one, std::string_view many);
std::string seconds_since(const Snapshot& snapshot, int64_t since_ns);
/// "rank 1 (process 4711, step 3)".
std::string name_rank(const RankSnapshot& rank);
/// "barrier() at x.cpp:3", of the call that it is in.
std::string describe_call(const MemberSnapshot& member);
/// Everybody that waits for one of `culprits`: who, where, how long.
std::string describe_waiters(const Snapshot& snapshot, const std::vector<Wait>& waits,
                             const std::set<int>& culprits);
/// The last call that a rank posted in the group where it was missed, or in any.
std::string describe_whereabouts(const Snapshot& snapshot, const std::vector<Wait>& waits,
                                 int rank);
/// Where a rank that is missed has not come, and what it does instead.
std::string describe_absence(const RankSnapshot& rank, const std::vector<Wait>& waits);
/// "is dead", "left the job", "never joined the job".
std::string describe_loss(const RankSnapshot& rank);

}  // namespace hanji::shm::internal
