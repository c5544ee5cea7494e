#pragma once

#include <type_traits>

#include "hanji/compute/gelu.h"
#include "hanji/compute/linear.h"
#include "hanji/parallel/tensor/blocks.h"
#include "hanji/parallel/tensor/typed.h"

/// Matrix products of which each rank of an axis computes a part. Nothing moves here: what does is the
/// region before or after. On one rank each is compute's operation, bit for bit; with a weight in blocks
/// each is the same bits on any number of ranks.
namespace hanji::parallel::tensor {

/// Each rank computes its columns of the output.
///
/// Shape   x [..., K], weight [N / ranks, K] -> [..., N / ranks].
inline Typed<Features> column_linear(const Typed<Broadcast>& x,
                                     const Parameter<Sharded<0>>& weight) {
  if (weight.blocks || weight.rows) {
    return Typed<Features>(column_blocks(x.value(), weight.weight, {weight.blocks, weight.rows}));
  }
  return Typed<Features>(compute::linear(x.value(), weight.weight));
}

/// Each rank multiplies its columns of x; the terms of all ranks add up to the output.
///
/// Shape   x [..., K / ranks], weight [N, K / ranks] -> [..., N].
inline Typed<Partial> row_linear(const Typed<Features>& x, const Parameter<Sharded<1>>& weight) {
  if (weight.blocks || weight.rows) {
    return Typed<Partial>(row_blocks(x.value(), weight.weight, {weight.blocks, weight.rows}));
  }
  return Typed<Partial>(compute::linear(x.value(), weight.weight));
}

/// Each rank multiplies the rows that it has by the whole weight.
///
/// Shape   x [..., K], weight [N, K] -> [..., N].
template <class Placement>
requires(!std::is_same_v<Placement, Features>) Typed<Placement> linear(
    const Typed<Placement>& x, const RowParameter<Placement>& weight) {
  return Typed<Placement>(compute::linear(x.value(), weight.weight));
}

/// compute::bias_gelu of rows or columns. A bias of rows in blocks is [blocks of this rank, N].
template <class Placement>
Typed<Placement> bias_gelu(const Typed<Placement>& x, const RowParameter<Placement>& bias) {
  if (bias.rows) {
    return Typed<Placement>(bias_gelu_to_blocks(x.value(), bias.weight.value, *bias.rows));
  }
  return Typed<Placement>(compute::bias_gelu(x.value(), bias.weight));
}

}  // namespace hanji::parallel::tensor
