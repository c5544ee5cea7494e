#pragma once

#include <bit>
#include <vector>

namespace hanji::schedule::internal {

/// p ranks as a power of two: ranks 2i and 2i + 1 are one for i < extra, and 2i stands for both.
struct Folding {
  explicit Folding(int ranks)
      : core(static_cast<int>(std::bit_floor(static_cast<unsigned>(ranks)))), extra(ranks - core) {}

  int core;   ///< The largest power of two up to p.
  int extra;  ///< p - core pairs.

  /// The rank that stands at a place of [0, core). Place core: the number of ranks.
  int rank_at(int place) const { return place < extra ? 2 * place : place + extra; }

  /// Exchanges of neighbours first, then of pairs, ...: the tree over ranks, as in Step::tree.
  std::vector<int> tree() const;
};

}  // namespace hanji::schedule::internal
