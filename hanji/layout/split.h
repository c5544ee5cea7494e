#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "hanji/base/status.h"
#include "hanji/layout/range.h"

namespace hanji::layout {

/// Which whole grains each rank owns: contiguous ranges in rank order covering [0, num_grains).
///
/// Result  sizes by the largest remainder of num_grains * weight / sum(weights); of equal
///         remainders the lower rank wins. No weights: equal ones.
/// Errors  invalid_argument if grains are fewer than ranks, weights are not one positive finite
///         number per rank, or a weight is so small that its rank would own nothing.
Result<std::vector<Range>> split_grains(int64_t num_grains, int ranks,
                                        std::span<const double> weights = {});

}  // namespace hanji::layout
