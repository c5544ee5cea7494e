#include "hanji/layout/shard.h"

#include <algorithm>

namespace hanji::layout {

int64_t round_up(int64_t value, int64_t multiple) {
  const int64_t remainder = value % multiple;
  return remainder == 0 ? value : value + (multiple - remainder);
}

int64_t shard_size(int64_t count, int num_shards, int64_t multiple) {
  const int64_t ceiling = count / num_shards + (count % num_shards != 0);
  return round_up(ceiling, multiple);
}

Range shard_range(int64_t count, int num_shards, int index, int64_t multiple) {
  const int64_t size = shard_size(count, num_shards, multiple);
  // size * index may pass the end for the last shards, and 2^63 only if count does too.
  const auto clip = [&](int64_t i) {
    return size != 0 && i > count / size ? count : std::min(count, i * size);
  };
  return {clip(index), clip(index + 1)};
}

}  // namespace hanji::layout
