#pragma once

#include <functional>
#include <ostream>
#include <span>
#include <string>

#include "hanji/comm/group.h"

/// One rank does something else, in every routine: all ranks name it before a byte is used. For
/// tests of every engine; groups of three ranks, the last of which strays.
namespace hanji::comm::internal {

inline constexpr int kDesyncRanks = 3;

/// Changes the options of one rank's group.
using ChangeOptions = std::function<void(GroupOptions&, int rank)>;

/// Where a disagreement is tried: run() calls `body` on each rank that this process has, every time
/// on a new group, since a disagreement ends it.
struct DesyncEngine {
  std::string name;
  std::function<void(const std::function<void(const Group&)>& body, const ChangeOptions&)> run{};
  bool shares_memory = false;
};

/// What a rank calls a routine with.
struct How;

struct DesyncRoutine {
  const char* name;
  bool has_op, has_root, has_shares;
  /// Calls it, tells what was thrown, and whether the output was left alone.
  bool (*call)(const Group&, const How&, std::string& said);
};
std::ostream& operator<<(std::ostream& out, const DesyncRoutine& routine);

std::span<const DesyncRoutine> desync_routines();

/// Another routine, count, type, op, root or other shares.
void check_disagreements(const DesyncEngine& engine, const DesyncRoutine& routine);

/// The algorithms that ranks were told to take, and on engines that have their own, the promise.
void check_other_ways(const DesyncEngine& engine);

/// A message of another length, type or tag than its receiver expects, from each rank to the last.
void check_messages(const DesyncEngine& engine);

/// One rank calls another group: the deadline ends it, and no byte is used.
void check_crossed_groups(const DesyncEngine& engine);

/// Ranks of a subgroup in another order.
void check_subgroups(const DesyncEngine& engine);

}  // namespace hanji::comm::internal
