#pragma once

#include <cstdint>
#include <vector>

#include "hanji/layout/range.h"
#include "hanji/schedule/step_list.h"

namespace hanji::schedule::internal {

/// Where a node of the pairwise tree over ranks splits: one rank of each half speaks for it.
struct Split {
  int keeper = 0;       ///< Of the half with the root, else of the lower half; speaks for both.
  int other = 0;        ///< The lowest rank of the other half.
  layout::Range ranks;  ///< The ranks of the other half.
  bool other_is_lower = false;
};

/// All p - 1 splits, every one before those inside its halves: the order of a binomial broadcast,
/// and backwards of a binomial reduce. 8 ranks, root 0: 0-4 0-2 0-1 2-3 4-6 4-5 6-7.
/// Result  ceil(log2 p) rounds deep; every rank but the root is `other` once.
std::vector<Split> halving_splits(int ranks, int root);

/// Inputs travel up the splits and are combined in order into the root's `result`, by a kReduce.
/// Uses two slots of count.
void add_binomial_reduce(StepList& list, int root, Place result);

/// The root's `source` travels down the splits into all other outputs.
void add_binomial_broadcast(StepList& list, int root, Place source);

}  // namespace hanji::schedule::internal
