#pragma once

#include <cstdint>

#include "hanji/layout/range.h"

namespace hanji::layout {

/// Elements between two starts of vector bodies; flat parameters and slices start at a multiple.
inline constexpr int64_t kAlignment = 64;

/// The smallest multiple of `multiple` that is at least `value`; both are positive or zero value.
int64_t round_up(int64_t value, int64_t multiple);

/// Elements of a full shard: ceil(count / num_shards), rounded up to `multiple`.
int64_t shard_size(int64_t count, int num_shards, int64_t multiple = kAlignment);

/// Shard `index` of [0, count) cut into `num_shards` pieces.
///
/// Result  contiguous, in order, covering [0, count); the last ones may be short or empty.
/// Order   index in [0, num_shards), num_shards >= 1, count >= 0, multiple >= 1.
Range shard_range(int64_t count, int num_shards, int index, int64_t multiple = kAlignment);

}  // namespace hanji::layout
