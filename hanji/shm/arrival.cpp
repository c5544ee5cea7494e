#include <fmt/format.h>

#include <algorithm>

#include "hanji/shm/hang.h"

namespace hanji::shm {

std::string describe_operation(const GroupSnapshot& group, uint64_t operation) {
  if (group.sender) {
    return fmt::format("message {} from rank {} to rank {}", operation, *group.sender,
                       group.receiver.value_or(group.members.back().rank));
  }
  return group.name.empty() ? fmt::format("operation {} of group {}", operation, group.id)
                            : fmt::format("operation {} of group {}", operation, group.name);
}

uint64_t present_operation(const GroupSnapshot& group) {
  uint64_t last = 0;
  for (const MemberSnapshot& member : group.members) last = std::max(last, member.begun);
  return last;
}

std::vector<int> arrived(const GroupSnapshot& group, uint64_t operation) {
  std::vector<int> ranks;
  for (const MemberSnapshot& member : group.members) {
    if (member.begun >= operation) ranks.push_back(member.rank);
  }
  return ranks;
}

std::vector<int> delivered(const GroupSnapshot& group, uint64_t operation) {
  std::vector<int> ranks;
  for (const MemberSnapshot& member : group.members) {
    if (member.completed >= operation) ranks.push_back(member.rank);
  }
  return ranks;
}

}  // namespace hanji::shm
