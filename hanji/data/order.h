#pragma once

#include <array>
#include <cstdint>

#include "hanji/layout/range.h"

namespace hanji::data {

/// The order of one epoch: a bijection on [0, count) chosen by (seed, epoch).
///
/// An eight-round Feistel network on the next even number of bits; values that land outside
/// [0, count) are walked along their cycle until they land inside (fewer than 4 rounds of the
/// network on average, 256 / count for tiny counts).
/// Cost    80 bytes whatever `count` is; any position at once.
/// Source  Black & Rogaway, CT-RSA 2002 (cycle walking); Luby & Rackoff, SIAM J. Comput. 17(2), 1988.
class Permutation {
 public:
  static constexpr int kRounds = 8;

  /// `count` >= 1.
  Permutation(uint64_t seed, uint64_t epoch, int64_t count);

  /// The sample at position `index` of the epoch; `index` in [0, count).
  int64_t operator()(int64_t index) const;
  /// Those at `positions` of the epoch, in order, by vectors: many at once cost a fraction of as many calls.
  void operator()(layout::Range positions, int64_t* out) const;
  int64_t count() const { return count_; }

  /// Of the network: one per round, and the bits of each half, at most 32.
  const std::array<uint64_t, kRounds>& keys() const { return keys_; }
  int half_bits() const { return half_bits_; }

 private:
  uint64_t encrypt(uint64_t value) const;

  std::array<uint64_t, kRounds> keys_;
  int64_t count_;
  int half_bits_;
};

}  // namespace hanji::data
