#pragma once

#include "hanji/compute/weight.h"
#include "hanji/parallel/tensor/axis.h"
#include "hanji/parallel/tensor/typed.h"

namespace hanji::parallel::tensor {

namespace internal {
at::Tensor gathered_linear(const at::Tensor& x, const compute::Weight& weight, int64_t dim,
                           const Axis& axis, const Extents& extents);
}

/// Each rank multiplies the rows that it has by the whole weight, of which it has a part, by outputs (0)
/// or inputs (1): the parts are gathered here, and again in the backward, which scatters the sum of the
/// weight's gradients. On one rank this is compute::linear, bit for bit.
///
/// Shape   x [..., K], whole weight [N, K] -> [..., N]; `extents` of each rank's part along the cut
///         dimension; empty: all are like this one.
/// Cost    an all_gather of the weight in x's dtype in forward; in backward another, and a
///         reduce_scatter in the weight's. The whole is in memory only meanwhile.
/// Errors  throws Error(kUnsupported) on an axis in blocks.
template <int64_t kDim>
Typed<Tokens> gathered_linear(const Typed<Tokens>& x, const Parameter<Sharded<kDim>>& weight,
                              const Axis& axis, const Extents& extents = {}) {
  return Typed<Tokens>(internal::gathered_linear(x.value(), weight.weight, kDim, axis, extents));
}

}  // namespace hanji::parallel::tensor
