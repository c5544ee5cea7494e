#pragma once

#include <utility>
#include <vector>

#include "hanji/parallel/axial/layouts.h"

/// Stable bits of cut rows. The rows of a sample are computed in blocks (Axis::in_blocks), of which a rank has
/// whole ones: each block is one product of one shape on any number of ranks, and what blocks add to a
/// gradient or a loss is added up by the grain tree. On an axis without blocks a rank's rows are one, and
/// every function here gives the plain operation.
namespace hanji::parallel::axial {

/// This rank's blocks along a dimension, by where they lie in the whole.
struct RowBlocks {
  std::vector<layout::Range> ranges;
  bool are_alone = false;  ///< Computed one by one; else one range, of all rows of the rank.
};

RowBlocks own_blocks(const Axis& axis, const Extents& extents);

namespace internal {
std::vector<at::Tensor> split(const at::Tensor& x, int64_t dim, const RowBlocks& blocks);
at::Tensor join(std::vector<at::Tensor> parts, int64_t dim, const RowBlocks& blocks);
std::vector<at::Tensor> gathered_for_blocks(const at::Tensor& x, int64_t dim, const Axis& axis,
                                            const Extents& extents);
}  // namespace internal

/// The rows of each block. Contiguous, where there are blocks.
template <int64_t kDim>
std::vector<at::Tensor> split(const Typed<tensor::Sharded<kDim>>& x, const RowBlocks& blocks) {
  return internal::split(x.value(), kDim, blocks);
}

/// What blocks have computed, one after another. Where there are blocks, the gradient of each is contiguous.
template <int64_t kDim>
Typed<tensor::Sharded<kDim>> join(std::vector<at::Tensor> parts, const RowBlocks& blocks) {
  return Typed<tensor::Sharded<kDim>>(internal::join(std::move(parts), kDim, blocks));
}

/// The parts of all ranks, once for each block that reads them: the gradient of each is a term.
/// Cost    an all_gather; backward an all_to_all of partial sums, without blocks a reduce_scatter.
template <int64_t kDim>
std::vector<Typed<Full>> gather_for_blocks(const Typed<tensor::Sharded<kDim>>& x, const Axis& axis,
                                           const Extents& extents) {
  std::vector<Typed<Full>> all;
  for (at::Tensor& one : internal::gathered_for_blocks(x.value(), kDim, axis, extents)) {
    all.emplace_back(std::move(one));
  }
  return all;
}

/// Parameters once for each block of this rank. Their gradients, summed over the blocks of all ranks, are equal
/// on all ranks; without blocks they are a term of each rank.
/// Cost    backward: one tree reduction of all parameters together.
std::vector<std::vector<at::Tensor>> parameters_of_blocks(const std::vector<at::Tensor>& parameters,
                                                          const Axis& axis);

/// The sum of the terms of the blocks of all ranks; `terms` one for each block of this rank.
/// Shape   any, the same of each. Result: equal on all ranks; without blocks this rank's one term.
at::Tensor sum_of_blocks(const std::vector<at::Tensor>& terms, const Axis& axis);

}  // namespace hanji::parallel::axial
