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

}  // namespace hanji::data::internal
