#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "hanji/schedule/step_list.h"

namespace hanji::schedule {

/// What shapes a list beside its routine, ranks and count; an algorithm reads what concerns it.
struct ListShape {
  int root = 0;
  int segments = 1;        ///< Of a pipelined algorithm.
  int ranks_per_host = 1;  ///< Of a hierarchical one.
  Kept kept = {};          ///< Of a symmetric one.
};

/// One way to carry out a routine by messages alone: no rank touches the memory of another.
struct Algorithm {
  Routine routine = Routine::kBroadcast;
  std::string_view name;  ///< StepList::algorithm of its lists.
  /// Seconds where p is a power of two: S the bytes of the whole buffer, a the latency of a
  /// message, b the seconds per byte, k the segments; without the time to combine.
  std::string_view seconds;
  bool is_pipelined = false;     ///< Reads ListShape::segments.
  bool is_hierarchical = false;  ///< Reads ListShape::ranks_per_host.
  bool is_symmetric = false;     ///< Reads ListShape::kept.
  StepList (*make)(int ranks, int64_t count, const ListShape& shape) = nullptr;
};

/// Steps of all ranks of its list, which is not made. Throws Error where its maker would.
int64_t num_steps(const Algorithm& algorithm, int ranks, int64_t count, const ListShape& shape);

/// The largest count of a list of so many ranks.
int64_t max_count(int ranks);

/// All of them, by routine.
std::span<const Algorithm> message_algorithms();
/// Those of one routine; none for barrier and tree_reduce.
std::vector<Algorithm> message_algorithms(Routine routine);

}  // namespace hanji::schedule
