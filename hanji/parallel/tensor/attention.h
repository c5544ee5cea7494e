#pragma once

#include "hanji/compute/attention.h"
#include "hanji/parallel/tensor/axis.h"
#include "hanji/parallel/tensor/dropout.h"
#include "hanji/parallel/tensor/typed.h"

namespace hanji::parallel::tensor {

/// compute::causal_attention of the heads that each rank has: those whose queries, keys and values
/// are its columns of the projection (segments {C, C, C} of layout::Placement, unit the width of a
/// head). Heads do not meet, so nothing moves; dropped weights are those of the same heads on one rank.
///
/// Shape   qkv [B, T, 3C / ranks], bias [3C / ranks] -> [B, T, C / ranks]; options.heads of all ranks.
inline Typed<Features> causal_attention(const Typed<Features>& qkv,
                                        const Parameter<Sharded<0>>& bias,
                                        compute::AttentionOptions options, const Axis& axis) {
  const Extents heads = axis.extents_of(options.heads);
  options.heads = heads[axis.rank()];
  options.key.part = own_dropout_part(1, axis, heads);
  return Typed<Features>(compute::causal_attention(qkv.value(), bias.weight, options));
}

}  // namespace hanji::parallel::tensor
