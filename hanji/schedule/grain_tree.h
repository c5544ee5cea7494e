#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "hanji/base/status.h"
#include "hanji/layout/range.h"
#include "hanji/schedule/step_list.h"

namespace hanji::schedule {

/// buffer[into] = buffer[into] + buffer[from].
struct Combine {
  int into = 0;
  int from = 0;
  bool operator==(const Combine&) const = default;
};

/// What a rank does when the gradient of one grain is complete: the gradient is made in `buffer`;
/// then buffers are added, one pair after another.
struct FoldStep {
  int64_t grain = 0;
  int buffer = 0;
  std::vector<Combine> combines = {};

  bool operator==(const FoldStep&) const = default;
};

/// One rank's part of the tree.
struct Fold {
  /// The maximal subtrees inside the rank's grains, as leaf intervals in order. After the last
  /// step partial i lies in buffer i, which is part i of its input to tree_all_reduce().
  std::vector<layout::Range> partials;
  std::vector<FoldStep> steps;  ///< One per grain.
  int num_buffers = 0;          ///< Most buffers alive at once; at least partials.size().

  bool operator==(const Fold&) const = default;
};

/// The sum over the grains of a global batch: a tree that does not know who owns which grain. A
/// node over a range of grains splits at the largest power of two below its length.
///
/// Result  for every owners the sum has the bits of pairwise_tree over all grains.
/// Cost    with G grains a rank has at most 2 log2 G partials (1 if it owns everything), and at
///         most one buffer more alive at once.
struct GrainTree {
  int64_t num_grains = 0;
  std::vector<layout::Range> owners;
  std::vector<Fold> ranks;
  /// The tree over all partials, rank by rank: postfix, the values index `partials`.
  std::vector<int> tree;
  struct Partial {
    int rank = 0;
    int part = 0;
    bool operator==(const Partial&) const = default;
  };
  std::vector<Partial> partials;

  bool operator==(const GrainTree&) const = default;
};

/// Refuses owners that are not contiguous ranges in rank order covering [0, num_grains), with at
/// least one grain and one rank. A rank may own nothing.
Status check_owners(int64_t num_grains, std::span<const layout::Range> owners);

/// The sums of a rank whose grains come in this order; the bits do not depend on it.
///
/// `partials`: of one rank of a grain tree. `grains`: each grain of them once.
/// Cost    ascending or descending, at most one buffer more than partials and levels of the tree; up to
///         a buffer for every other grain in other orders.
/// Errors  throws invalid_argument for other grains.
Fold fold_in_order(std::vector<layout::Range> partials, std::span<const int64_t> grains);

/// Which rank forms which node; each rank takes its grains in ascending order. Throws Error where
/// check_owners() refuses.
GrainTree grain_tree(int64_t num_grains, std::span<const layout::Range> owners);

/// sync; rank r combines slice r of all ranks' partials into all outputs; sync. Needs every
/// buffer in the heap.
/// Cost    2 syncs; all ranks together read (number of partials) * count and write p * count.
StepList tree_all_reduce(const GrainTree& tree, int64_t count);

}  // namespace hanji::schedule
