#pragma once

#include <cstdint>
#include <vector>

#include "hanji/layout/range.h"
#include "hanji/schedule/grain_tree.h"

namespace hanji::parallel {

/// Where a rank stands among its grains: which buffer the open grain's gradients go to, and what is
/// added up when they are there. It decides; the reducer holds the buffers and adds.
class GrainFold {
 public:
  /// `owners` have passed schedule::check_owners(). `order`: of this rank's grains; empty: ascending.
  /// Errors  throws as schedule::fold_in_order().
  GrainFold(int64_t num_grains, const std::vector<layout::Range>& owners, int rank,
            const std::vector<int64_t>& order = {});

  const schedule::GrainTree& tree() const { return tree_; }
  layout::Range grains() const { return tree_.owners[rank_]; }
  int num_buffers() const;

  /// Errors  throws kInvalidArgument if a grain is open or another one is due.
  void begin(int64_t grain);
  bool is_open() const { return open_; }
  /// True while the rank's last grain is open, and always for a rank without grains.
  bool is_last() const { return next_ + 1 >= steps().size(); }
  /// Of the open grain.
  const schedule::FoldStep& step() const { return steps()[next_]; }
  /// The open grain is folded. After the last one the next global batch begins.
  void end();

 private:
  const std::vector<schedule::FoldStep>& steps() const { return tree_.ranks[rank_].steps; }

  schedule::GrainTree tree_;
  int rank_;
  size_t next_ = 0;
  bool open_ = false;
};

/// This rank's grains; none without a fold, where bits are not stable.
inline layout::Range grains_of(const GrainFold* fold) {
  return fold ? fold->grains() : layout::Range{};
}

}  // namespace hanji::parallel
