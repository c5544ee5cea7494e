#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "hanji/layout/shard.h"

namespace hanji::layout {

/// Where each parameter lies in one flat buffer.
struct FlatLayout {
  std::vector<int64_t> offsets;  ///< First element of parameter i; a multiple of the alignment.
  std::vector<int64_t> sizes;    ///< Its elements, padding not counted.
  int64_t count = 0;             ///< Elements of the buffer, padding counted; a multiple too.

  bool operator==(const FlatLayout&) const = default;
};

/// Lays parameters one after another in the given order, each start rounded up to `alignment`,
/// so that vector bodies and tails fall on the same elements under every strategy.
FlatLayout flat_layout(std::span<const int64_t> sizes, int64_t alignment = kAlignment);

}  // namespace hanji::layout
