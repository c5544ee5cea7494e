#pragma once

#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "hanji/shm/hang.h"
#include "hanji/shm/internal/hang_waits.h"

/// Who is to blame: each kind of culprit, looked for in what was seen.
namespace hanji::shm::internal {

/// `what` is true of the culprits, each by itself.
HangVerdict blame(HangKind kind, const Snapshot& snapshot, const std::vector<Wait>& waits,
                  const std::vector<int>& culprits, const std::function<std::string(int)>& what);

std::vector<int> ranks_that(const Snapshot& snapshot,
                            const std::function<bool(const RankSnapshot&)>& holds);
/// Dead, or not there and `missing`.
std::vector<int> lost_ranks(const Snapshot& snapshot, const std::set<int>& missing);
std::optional<HangVerdict> find_given_up(const Snapshot& snapshot);
/// Two members of a group began one operation with different calls.
std::optional<HangVerdict> find_different_calls(const Snapshot& snapshot);
/// Somebody waits for long: for ranks that do something else, or all for each other.
HangVerdict judge_waits(const Snapshot& snapshot, const std::vector<Wait>& waits);

}  // namespace hanji::shm::internal
