#pragma once

#include <set>
#include <vector>

#include "hanji/shm/snapshot.h"

namespace hanji::shm::internal {

/// One rank that waits, and the members that have not come to where it is.
struct Wait {
  const GroupSnapshot* group;
  const MemberSnapshot* waiter;
  std::vector<const MemberSnapshot*> missing;

  /// All members of this host have come, and others are on other hosts.
  bool is_elsewhere() const { return missing.empty() && !group->elsewhere.empty(); }
};

/// Every wait that the snapshot shows, with nobody missing where it is about to end.
std::vector<Wait> find_waits(const Snapshot& snapshot);
/// Null if there is none.
const Wait* longest(const std::vector<Wait>& waits);
std::set<int> all_missing(const std::vector<Wait>& waits);

}  // namespace hanji::shm::internal
