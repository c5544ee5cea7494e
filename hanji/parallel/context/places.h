#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "hanji/compute/dropout.h"
#include "hanji/layout/context.h"
#include "hanji/parallel/tensor/axis.h"

/// Context parallelism: each rank of an axis has some tokens of every sample, in all layers from the embedding
/// to the loss. Only attention needs those of other ranks (attention.h). Every rank has all parameters and a
/// term of their gradients, which data parallelism sums over the ranks of the axis as it does over samples.
namespace hanji::parallel::context {

using tensor::Axis;
using tensor::Extents;

/// Which tokens of a sample lie where.
struct Places {
  Axis axis = {};
  layout::ContextWay way = layout::ContextWay::kUlysses;
  int64_t length = 0;  ///< Tokens of a whole sample.

  bool is_cut() const { return axis.degree() > 1; }
  /// As layout::context_tokens(); on an axis in blocks of tokens those of this rank's, whatever the way.
  std::vector<layout::Range> own() const;
  Extents extents() const;
  int64_t num_own() const { return extents()[axis.rank()]; }
  /// Of own(), as if they lay one after another, what lies in `within`.
  std::vector<layout::Range> own(layout::Range within) const;
};

/// Errors  throws Error(kInvalidArgument) for samples of fewer tokens than ranges.
Places places_on(const Axis& axis, int64_t length, layout::ContextWay way);

/// This rank's tokens of what all ranks have, along `dim`; differentiable, the gradient is a term.
at::Tensor own_tokens(const at::Tensor& whole, int64_t dim, const Places& places);

/// compute::dropout of [B, tokens, ...], of which those of the whole sample's mask are taken. `within`: which
/// of this rank's tokens are here.
at::Tensor dropout(const at::Tensor& x, double probability, const compute::DropoutKey& key,
                   const Places& places, layout::Range within);

}  // namespace hanji::parallel::context
