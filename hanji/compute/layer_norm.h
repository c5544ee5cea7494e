#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <vector>

#include "hanji/compute/weight.h"

namespace hanji::compute {

struct LayerNorm {
  Weight weight;
  Weight bias;
  double epsilon = 1e-5;
  /// The sizes of blocks of rows whose sums stay apart: weights and the delta's bias are then [blocks, C]
  /// of equal rows, and row i of their gradients is of block i. Empty: one block, and [C].
  std::vector<int64_t> blocks = {};
};

/// What a branch adds to the residual stream: its output and the bias it still lacks.
/// Either may be undefined.
struct Delta {
  at::Tensor value;
  Weight bias;
};

struct Normed {
  at::Tensor sum;     ///< residual + delta.value + delta.bias, in the residual's dtype.
  at::Tensor normed;  ///< layer_norm(sum) in `dtype`.
};

/// Of gradients g [..., C] the sum over each block of rows: [blocks, C].
at::Tensor sums_of_blocks(const at::Tensor& g, const std::vector<int64_t>& blocks);

/// Adds a branch to the residual stream and normalises the sum, with one pass over memory.
///
/// Shape   residual and delta.value [..., C]; bias and weights [C] -> both [..., C].
/// Result  mean and variance over C in the residual's dtype (fp32 or fp64), two passes over the
///         row in registers; a row's bits do not depend on other rows. Gradients of weights sum
///         over rows in one fixed order, those of a block as if it were alone.
/// Errors  throws Error(kInvalidArgument) for blocks that do not make up the rows.
Normed add_layer_norm(const at::Tensor& residual, const Delta& delta, const LayerNorm& norm,
                      c10::ScalarType dtype);

}  // namespace hanji::compute
