#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "hanji/compute/weight.h"
#include "hanji/layout/placement.h"
#include "hanji/layout/range.h"
#include "hanji/parallel/tensor/axis.h"

namespace hanji::parallel::tensor {

/// What a rank has of a dimension whose features are computed in blocks (Axis::in_blocks). Each block is
/// one product on any number of ranks, and sums over blocks follow one tree.
struct FeatureBlocks {
  /// Of each own block, in order: its ranges of this rank's part, one for each segment.
  std::vector<std::vector<layout::Range>> ranges;
  schedule::Fold fold;
};
using FeatureBlocksPtr = std::shared_ptr<const FeatureBlocks>;

/// Those of a dimension of `size` that is placed so; null where the axis computes whole products.
/// Errors  throws Error(kInvalidArgument): those of layout::parts_of().
FeatureBlocksPtr feature_blocks(layout::Placement placement, int64_t size, const Axis& axis);

/// The partial sums [k, sizes...] of this rank's blocks: `make_term` fills the term of the block with
/// these ranges.
/// Cost    beside the result, memory for at most log2(blocks) terms.
using MakeTerm = std::function<void(const std::vector<layout::Range>& ranges, at::Tensor& term)>;
at::Tensor fold_blocks(const FeatureBlocks& blocks, at::IntArrayRef sizes,
                       const at::TensorOptions& options, const MakeTerm& make_term);

/// The sizes of this rank's blocks of `size` rows, on an axis in blocks of rows.
Extents own_block_sizes(int64_t size, const Axis& axis);

/// x [..., N] + each row of bias [k, N], all equal: row i of its gradient is summed over block i of x's rows.
at::Tensor add_bias_to_blocks(const at::Tensor& x, const at::Tensor& bias, const Extents& blocks);

/// x [..., N] + bias [N] of columns in blocks: the bias's gradient is summed over rows block by block.
at::Tensor add_bias_in_blocks(const at::Tensor& x, const compute::Weight& bias,
                              const FeatureBlocksPtr& blocks);

/// x[0] times the transposed weight, whose outputs are in blocks.
///
/// Shape   x [k, ..., K] of k equal tensors, weight [N, K] -> [..., N]; the gradient of x is the partial
///         sums [k, ..., K] of the blocks' terms.
at::Tensor column_blocks(const at::Tensor& x, const compute::Weight& weight,
                         const FeatureBlocksPtr& blocks);

/// x times the transposed weight, whose inputs are in blocks.
///
/// Shape   x [..., K], weight [N, K] -> the partial sums [k, ..., N], whose gradients are equal.
at::Tensor row_blocks(const at::Tensor& x, const compute::Weight& weight,
                      const FeatureBlocksPtr& blocks);

}  // namespace hanji::parallel::tensor
