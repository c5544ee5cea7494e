#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "hanji/base/status.h"

namespace hanji::layout {

/// One of the blocks that forward computes one after the other.
struct BlockCost {
  int64_t kept_bytes = 0;   ///< What forward keeps of it for backward.
  int64_t input_bytes = 0;  ///< Kept instead if the block is recomputed.
  double flops = 0;         ///< Of its forward, or seconds: what computing again costs.
};

struct RecomputeChoice {
  std::vector<bool> recomputed;  ///< By block.
  int64_t peak_bytes = 0;
  double flops = 0;  ///< Of all recomputed blocks.
};

/// Bytes at the worst moment: all that is held when backward begins, or, while a block is computed
/// again, what the blocks up to it hold and all that it keeps then.
int64_t peak_bytes(std::span<const BlockCost> blocks, const std::vector<bool>& recomputed);

/// Which blocks to recompute so that the peak is within the budget, at the least cost.
///
/// Result  optimal for bytes rounded up to 1/65536 of the budget.
/// Cost    65536 steps per block.
/// Errors  kOutOfMemory, with bytes that are enough, if no choice fits;
///         kInvalidArgument for negative bytes.
Result<RecomputeChoice> choose_recomputed(std::span<const BlockCost> blocks, int64_t budget_bytes);

}  // namespace hanji::layout
