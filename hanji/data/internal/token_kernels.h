#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>

#include "hanji/data/token_source.h"

namespace hanji::data::internal {

/// The least and the largest of some ids; of none, the least is above the largest.
struct IdRange {
  int64_t least = std::numeric_limits<int64_t>::max();
  int64_t largest = std::numeric_limits<int64_t>::min();
};

/// Of `count` ids from `from`, of any alignment.
IdRange range_of(TokenWidth width, const std::byte* from, int64_t count);

/// Writes them to `out`.
void widen(TokenWidth width, const std::byte* from, int64_t count, int64_t* out);

/// Ids of a sample, and those of the one behind it, which are brought nearer meanwhile.
struct PairOfRuns {
  const std::byte* from = nullptr;
  const std::byte* coming = nullptr;  ///< As many; any address, as nothing is read.
};

/// Writes ids [0, count) to `inputs` and [1, count + 1) to `targets` in one pass over memory.
/// Result  the range of all count + 1 of them.
IdRange widen_pair(TokenWidth width, PairOfRuns runs, int64_t count, int64_t* inputs,
                   int64_t* targets);

}  // namespace hanji::data::internal
