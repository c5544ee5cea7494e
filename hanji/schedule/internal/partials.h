#pragma once

#include <cstdint>

#include "hanji/schedule/grain_tree.h"

namespace hanji::schedule::internal {

/// The grain tree without its folds: which rank forms which node, and the tree over the partials.
/// Cost    O(ranks * log grains), so owners from a file cost nothing. Order: check_owners() passed.
GrainTree partial_tree(int64_t num_grains, std::span<const layout::Range> owners);

}  // namespace hanji::schedule::internal
