#pragma once

#include <ATen/ops/zeros.h>

#include <functional>

#include "hanji/compute/attention.h"
#include "hanji/parallel/tensor/axis.h"
#include "hanji/parallel/tensor/blocks.h"
#include "hanji/parallel/tensor/dropout.h"
#include "hanji/parallel/tensor/typed.h"

namespace hanji::parallel::tensor {

/// compute::causal_attention of the heads that each rank has: those whose queries, keys and values
/// are its columns of the projection (segments {C, C, C} of layout::Placement, or {C, K d, K d}
/// with K heads of keys and values; unit the width d of a head). Heads do not meet, so nothing moves; dropped weights are those of the same heads on one rank.
///
/// Shape   as compute's, of options.heads and options.kv_heads that are those of all ranks; whole groups
///         go to one rank, so there are at most kv_heads ranks. `attend` computes those of this rank, where
///         another axis has parts of the tokens.
using Attend = std::function<at::Tensor(const at::Tensor& qkv, const compute::Weight& bias,
                                        const compute::AttentionOptions& options)>;
inline Typed<Features> causal_attention(const Typed<Features>& qkv,
                                        const Parameter<Sharded<0>>& bias,
                                        compute::AttentionOptions options, const Axis& axis,
                                        const Attend& attend = compute::causal_attention) {
  const int64_t kv_heads = options.kv_heads == 0 ? options.heads : options.kv_heads;
  const Extents heads = axis.extents_of(options.heads, options.heads / kv_heads);
  options.key.part = own_dropout_part(1, axis, heads);
  options.heads = heads[axis.rank()];
  options.kv_heads = axis.extents_of(kv_heads)[axis.rank()];
  const bool plain = options.dropout > 0 || options.attention == compute::Attention::kFlash;
  if (bias.rows || (bias.blocks && plain)) {  // whose sum over rows would follow that of columns
    const at::Tensor x = add_bias_in_blocks(qkv.value(), bias.weight, {bias.blocks, bias.rows});
    const at::Tensor none = at::zeros({qkv.value().size(-1)}, bias.weight.value.options());
    return Typed<Features>(attend(x, {none, {}}, options));
  }
  return Typed<Features>(attend(qkv.value(), bias.weight, options));
}

}  // namespace hanji::parallel::tensor
