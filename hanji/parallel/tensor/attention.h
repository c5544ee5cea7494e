#pragma once

#include "hanji/compute/attention.h"
#include "hanji/parallel/tensor/typed.h"

namespace hanji::parallel::tensor {

/// compute::causal_attention of the heads that each rank has: those whose queries, keys and values
/// are its columns of the projection (segments {C, C, C} of layout::Placement, unit the width of a
/// head). Heads do not meet, so nothing moves.
///
/// Shape   qkv [B, T, 3C / ranks], bias [3C / ranks] -> [B, T, C / ranks]; options.heads of this rank.
inline Typed<Features> causal_attention(const Typed<Features>& qkv,
                                        const Parameter<Sharded<0>>& bias,
                                        const compute::AttentionOptions& options) {
  return Typed<Features>(compute::causal_attention(qkv.value(), bias.weight, options));
}

}  // namespace hanji::parallel::tensor
