#pragma once

#include <vector>

#include "hanji/layout/range.h"
#include "hanji/schedule/step_list.h"

namespace hanji::schedule::internal {

/// Ranks in a ring that reduce or gather `whole`, a range of the elements of an all_reduce;
/// member i owns slice i of it.
struct Ring {
  std::vector<int> members;
  layout::Range whole;
  bool even = false;  ///< Of a longest path: every slice is as large as the first.

  layout::Range slice(int index) const;
  int size() const { return static_cast<int>(members.size()); }
};

/// Slice i travels from member i + 1 around to member i, each adds its own part; there it ends in
/// the output, by a step of kind `last`. Parts are read from `source`, kInput or kOutput. Uses the
/// slot from 0 for one slice.
void add_ring_reduce(StepList& list, const Ring& ring, Place source, StepKind last);

/// Slice i of member i's output travels around to the outputs of all others.
void add_ring_gather(StepList& list, const Ring& ring);

}  // namespace hanji::schedule::internal
