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

/// What a rank has of a dimension whose features, or rows, are computed in blocks (Axis::in_blocks). Each block
/// is one product on any number of ranks, and sums over blocks follow one tree.
struct FeatureBlocks {
  /// Of each own block, in order: its ranges of this rank's part, one for each segment.
  std::vector<std::vector<layout::Range>> ranges;
  schedule::Fold fold;
};
using FeatureBlocksPtr = std::shared_ptr<const FeatureBlocks>;

/// In which a product is computed; null: in one. With rows in blocks a weight is [k, ...] of equal tensors, and
/// its gradient the partial sums of the rows' blocks.
struct ProductBlocks {
  FeatureBlocksPtr features, rows;
};

/// Those of a dimension of `size` that is placed so; null where the axis computes whole products.
/// Errors  throws Error(kInvalidArgument): those of layout::parts_of().
FeatureBlocksPtr feature_blocks(layout::Placement placement, int64_t size, const Axis& axis);

/// Of the rows of samples of `tokens` tokens, of which each rank of an axis in blocks of tokens has its own; null
/// where it has no blocks. Those of one sample; of several as many times longer, which suits what needs no
/// gradient and what is counted.
FeatureBlocksPtr token_blocks(int64_t tokens, int64_t samples, const Axis& axis);

/// The partial sums [k, sizes...] of this rank's blocks: `make_term` fills the term of the block with
/// these ranges.
/// Cost    beside the result, memory for at most log2(blocks) terms.
using MakeTerm = std::function<void(const std::vector<layout::Range>& ranges, at::Tensor& term)>;
at::Tensor fold_blocks(const FeatureBlocks& blocks, at::IntArrayRef sizes,
                       const at::TensorOptions& options, const MakeTerm& make_term);

/// Contiguous from the beginning of a cache line: kernels choose by strides and by the place in a line, and both depend
/// on where a block lies among those of its rank.
at::Tensor at_a_line(const at::Tensor& x);

/// The sum of `terms` [own blocks, ...] of all ranks' blocks, equal on all ranks.
at::Tensor sum_of_terms(const at::Tensor& terms, const Axis& axis);

/// The sizes of this rank's blocks of `size` rows, on an axis in blocks of rows.
Extents own_block_sizes(int64_t size, const Axis& axis);

/// x [..., N] + each row of bias [k, N], all equal, in x's dtype: row i of its gradient, which is of the
/// bias's dtype, is summed over block i of x's rows.
at::Tensor add_bias_to_blocks(const at::Tensor& x, const at::Tensor& bias, const Extents& blocks);

/// x [..., N] + bias [N] of columns in blocks: the bias's gradient is summed over rows block by block.
at::Tensor add_bias_in_blocks(const at::Tensor& x, const compute::Weight& bias,
                              const ProductBlocks& blocks);

/// compute::bias_gelu with row i of bias [own blocks, N], all equal, on block i of x's rows.
at::Tensor bias_gelu_to_blocks(const at::Tensor& x, const at::Tensor& bias,
                               const FeatureBlocks& rows);

/// The rows of table[0] at `tokens`: the gradient of table [k, V, C] is the partial sums of the blocks of rows.
at::Tensor embedding_in_blocks(const at::Tensor& tokens, const at::Tensor& table,
                               const FeatureBlocksPtr& rows);

/// x[0] times the transposed weight, whose outputs are in blocks.
///
/// Shape   x [k, ..., K] of k equal tensors, weight [N, K] -> [..., N]; the gradient of x is the partial
///         sums [k, ..., K] of the blocks' terms. Without blocks of features x and its gradient are [..., K].
at::Tensor column_blocks(const at::Tensor& x, const compute::Weight& weight,
                         const ProductBlocks& blocks);

/// x times the transposed weight, whose inputs are in blocks.
///
/// Shape   x [..., K], weight [N, K] -> the partial sums [k, ..., N], whose gradients are equal. Without
///         blocks of features [..., N].
at::Tensor row_blocks(const at::Tensor& x, const compute::Weight& weight,
                      const ProductBlocks& blocks);

}  // namespace hanji::parallel::tensor
