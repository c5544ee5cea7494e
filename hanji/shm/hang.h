#pragma once

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include "hanji/shm/snapshot.h"

namespace hanji::shm {

/// What is the matter with a job; the first that holds.
enum class HangKind {
  kEnded,      ///< A word has ended it.
  kDead,       ///< A rank is dead, or left, or never came, while others need it.
  kStopped,    ///< A rank is stopped by a signal or a debugger.
  kGaveUp,     ///< A rank gave a group up by itself.
  kDiverged,   ///< Ranks are in different calls and wait for each other.
  kAbsent,     ///< Ranks wait for others that do something else.
  kElsewhere,  ///< Ranks wait for messages of ranks on other hosts, where this snapshot ends.
  kNone,       ///< Nobody has waited for long.
};

/// "ended", "dead", "stopped", "gave_up", "diverged", "absent", "elsewhere", "none".
std::string_view name_of(HangKind kind);

struct HangVerdict {
  HangKind kind = HangKind::kNone;
  std::vector<int> culprits;  ///< Ranks to look at first; ascending.
  int group = -1;             ///< Of the call where it shows; -1: none.
  uint64_t operation = 0;     ///< There.
  std::string sentence;       ///< For people.
};

/// Says why a job does not go on. A pure function of what was seen.
///
/// Result  kNone where all waits are shorter than `patience`: ranks always wait a little.
HangVerdict judge(const Snapshot& snapshot,
                  std::chrono::nanoseconds patience = std::chrono::seconds(1));

/// The ranks of `group` that have arrived at its operation, and those that have delivered it.
std::vector<int> arrived(const GroupSnapshot& group, uint64_t operation);
std::vector<int> delivered(const GroupSnapshot& group, uint64_t operation);
/// The last operation that some member has begun; 0: none.
uint64_t present_operation(const GroupSnapshot& group);

/// "operation 5 of group 0", "message 3 from rank 0 to rank 1".
std::string describe_operation(const GroupSnapshot& group, uint64_t operation);

}  // namespace hanji::shm
