#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "hanji/base/status.h"
#include "hanji/shm/internal/flag_line.h"
#include "hanji/shm/internal/group_lines.h"

/// What is said when a call cannot go on: who, which call, where in the source, and why.
namespace hanji::shm::internal {

/// "all_reduce(sum, float32, 1000 elements, tag 3) at train.cpp:12".
std::string describe_call(const GroupLines& lines, int member, const Descriptor& call);
/// Without the call site; `receives`: of a message, the receiver's side.
std::string describe_arguments(const Descriptor& call, bool receives);

/// "its last call here was operation 11, barrier() at eval.cpp:9", of the group of `lines`.
std::string last_call(const GroupLines& lines, int member);
/// "its last call was operation 4, all_reduce(...) at x.cpp:3", of this rank in this group.
std::string own_last_call(const GroupLines& lines);

/// The members were called differently; `posted` is what each said. The same text on every rank.
Status mismatch_verdict(const GroupLines& lines, const std::vector<Words>& posted,
                        uint64_t operation);

/// What an unfinished call of this rank waits for.
struct Waiting {
  uint64_t sequence;
  uint64_t operation;
  Descriptor call;
  double seconds;
};

/// Some members did not come in time.
Status timeout_verdict(const GroupLines& lines, const Waiting& waiting);

/// A member has cancelled a call; `mine` is what this rank was in, or null.
Status cancelled_verdict(const GroupLines& lines, const GroupLines::Cancelled& by,
                         const Descriptor* mine);

/// A member that is waited for has left, or gave up with `code`.
Status left_verdict(const GroupLines& lines, const Waiting& waiting, int member);
Status gave_up_verdict(const GroupLines& lines, const Waiting& waiting, int member);

/// `waiting` of RankState: group + 1 above, then whether the time ran out, the operation below.
constexpr uint64_t kGaveUp = uint64_t{1} << 47;
constexpr uint64_t pack_waiting(int group, uint64_t operation) {
  return static_cast<uint64_t>(group + 1) << 48 | (operation & (kGaveUp - 1));
}

}  // namespace hanji::shm::internal
