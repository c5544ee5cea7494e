#pragma once

#include <cstdint>
#include <span>

#include "hanji/layout/range.h"
#include "hanji/schedule/step_list.h"

namespace hanji::schedule {

/// tree_all_reduce() between hosts: slices of all partial sums are exchanged in pairs, combined by
/// the tree over the grains, and exchanged again. `owners` as of grain_tree(); N elements.
/// Cost    no sync; rank r with k of the P partials sends k (N - n_r) + (p-1) n_r elements, n_r its
///         slice. Slots of P slices.
/// Errors  throws Error(invalid_argument) where check_owners() refuses.
StepList tree_exchange(std::span<const layout::Range> owners, int64_t count);

}  // namespace hanji::schedule
