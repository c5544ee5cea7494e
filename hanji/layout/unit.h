#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "hanji/layout/flat.h"
#include "hanji/layout/range.h"

namespace hanji::layout {

/// A shard ends only here inside a parameter, counted from the parameter's start: one partial sum
/// of a gradient's norm, so no such sum is cut in two.
inline constexpr int64_t kShardBlock = 1024;

/// Partial sums of that many elements, counted from where one begins.
constexpr int64_t num_blocks(int64_t elements) {
  return (elements + kShardBlock - 1) / kShardBlock;
}

/// Parameters that are unsharded, computed with and reduced together, and the shard of each rank.
struct Unit {
  std::vector<int> parameters;  ///< Their indices of registration, in the order they lie here.
  FlatLayout flat;              ///< By position in `parameters`.
  std::vector<Range> shards;    ///< Of [0, flat.count), by rank; contiguous, in rank order.

  bool operator==(const Unit&) const = default;
};

/// What of one parameter lies in one shard.
struct Piece {
  int position = 0;  ///< In Unit::parameters.
  Range elements;    ///< Of the parameter.
  int64_t flat = 0;  ///< Where they begin in the unit's flat buffer; a multiple of 64.

  bool operator==(const Piece&) const = default;
};

/// Cuts a flat buffer near `ends`, ascending, at places where a shard may end: the start of a
/// parameter, or a multiple of `block` elements behind it. The last range ends with the buffer.
///
/// Result  one range per end, contiguous; one may be empty.
std::vector<Range> cut_near(const FlatLayout& flat, std::span<const int64_t> ends,
                            int64_t block = kShardBlock);

/// Cuts a flat buffer into one range per rank, as even as ends at whole blocks allow.
///
/// Result  contiguous ranges in rank order covering [0, flat.count); one may be empty. Each begins
///         at the start of a parameter or at a multiple of `block` elements behind it.
/// Order   ranks >= 1; block a multiple of kAlignment.
std::vector<Range> cut_shards(const FlatLayout& flat, int ranks, int64_t block = kShardBlock);

/// The unit of `parameters`, whose sizes are sizes[index of registration].
Unit make_unit(std::vector<int> parameters, std::span<const int64_t> sizes, int ranks);

/// The pieces of rank `rank`'s shard, in the order they lie there.
std::vector<Piece> pieces(const Unit& unit, int rank);

/// Elements of each rank's shard: the counts of an uneven all_gather or reduce_scatter.
std::vector<int64_t> shard_counts(const Unit& unit);

/// Partial sums of the norm in each rank's shard.
std::vector<int64_t> block_counts(const Unit& unit);

/// Groups parameters in order of registration: a group closes once it holds `elements`, so a larger
/// parameter closes one alone. Those of `alone`, by index, are a group each, before all others.
std::vector<std::vector<int>> group_by_size(std::span<const int64_t> sizes, int64_t elements,
                                            const std::vector<int>& alone = {});

}  // namespace hanji::layout
