#include "hanji/shm/internal/hang_waits.h"

#include <algorithm>

namespace hanji::shm::internal {
namespace {

bool is_behind(const MemberSnapshot& member, const MemberSnapshot& waiter) {
  if (member.begun < waiter.begun) return true;
  return member.begun == waiter.begun && member.inside() && member.sequence < waiter.sequence;
}

}  // namespace

std::vector<Wait> find_waits(const Snapshot& snapshot) {
  std::vector<Wait> waits;
  for (const GroupSnapshot& group : snapshot.groups) {
    for (const MemberSnapshot& waiter : group.members) {
      if (!waiter.waiting_ns) continue;
      Wait wait{&group, &waiter, {}};
      for (const MemberSnapshot& member : group.members) {
        if (is_behind(member, waiter)) wait.missing.push_back(&member);
      }
      waits.push_back(std::move(wait));
    }
  }
  return waits;
}

const Wait* longest(const std::vector<Wait>& waits) {
  const auto since = [](const Wait& wait) { return *wait.waiter->waiting_ns; };
  const auto found = std::ranges::min_element(waits, {}, since);
  return found == waits.end() ? nullptr : &*found;
}

std::set<int> all_missing(const std::vector<Wait>& waits) {
  std::set<int> ranks;
  for (const Wait& wait : waits) {
    for (const MemberSnapshot* member : wait.missing) ranks.insert(member->rank);
  }
  return ranks;
}

}  // namespace hanji::shm::internal
