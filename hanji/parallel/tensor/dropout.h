#pragma once

#include <cstdint>
#include <numeric>

#include "hanji/compute/dropout.h"
#include "hanji/parallel/tensor/axis.h"
#include "hanji/parallel/tensor/typed.h"

namespace hanji::parallel::tensor {

/// The part of a tensor that this rank drops, its dimension `dim` cut by `extents`.
inline compute::DropoutPart own_dropout_part(int64_t dim, const Axis& axis,
                                             const Extents& extents) {
  return {dim, axis.own_range(extents).begin,
          std::accumulate(extents.begin(), extents.end(), int64_t{0})};
}

/// compute::dropout of what each rank has: the mask is that of the whole, of which ranks with parts
/// take theirs. `extents` of each rank's part; empty: all are like this one.
inline Typed<Replicated> dropout(const Typed<Replicated>& x, double probability,
                                 const compute::DropoutKey& key, const Axis& /*axis*/,
                                 const Extents& /*extents*/ = {}) {
  return Typed<Replicated>(compute::dropout(x.value(), probability, key));
}
template <int64_t kDim>
Typed<Sharded<kDim>> dropout(const Typed<Sharded<kDim>>& x, double probability,
                             compute::DropoutKey key, const Axis& axis,
                             const Extents& extents = {}) {
  const Extents alike(axis.degree(), x.value().size(kDim));
  key.part = own_dropout_part(kDim, axis, extents.empty() ? alike : extents);
  return Typed<Sharded<kDim>>(compute::dropout(x.value(), probability, key));
}

}  // namespace hanji::parallel::tensor
