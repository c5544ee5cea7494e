#pragma once

#include <vector>

#include "hanji/base/status.h"
#include "hanji/schedule/internal/symbols.h"
#include "hanji/schedule/step_list.h"

namespace hanji::schedule::internal {

/// What a routine promises of every element of every output, as expressions over the inputs.
class Postcondition {
 public:
  Postcondition(const StepList& list, Symbols& symbols);

  /// The expression that an input holds at first: a leaf, or for a tree_reduce the subtree over
  /// the grains that the partial has folded. So the check proves that the partials' tree is the
  /// grains' tree.
  int input(int rank, int part) const { return inputs_[rank][part]; }

  /// Refuses a piece of the rank's output that does not hold what is promised.
  Status check(int rank, const Piece& piece) const;

 private:
  bool holds(const Value& value, int expr, int64_t shift, bool reduced) const;
  bool kept(int rank, const Piece& piece) const;
  bool block_kept(int rank, const Piece& piece) const;

  const StepList& list_;
  Symbols& symbols_;
  std::vector<std::vector<int>> inputs_;
  std::vector<std::vector<layout::Range>> given_, got_;  ///< Blocks of each rank's input, output.
  int sum_ = -1;                                         ///< Of all ranks, or of all grains.
  int64_t sum_leaves_ = 0;
};

}  // namespace hanji::schedule::internal
