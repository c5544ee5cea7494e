#pragma once

#include <ATen/core/Tensor.h>

#include "hanji/compute/attention.h"
#include "hanji/parallel/context/places.h"

namespace hanji::parallel::context {

/// compute::causal_attention of samples of which each rank has some tokens.
///
/// Shape   qkv [B, own tokens, (heads + 2 kv_heads) d] -> [B, own tokens, heads d]; the bias is whole. Its
///         gradient is a term, as every parameter's: under Ulysses of this rank's heads, else of its tokens.
/// Result  Ulysses: each head is computed by one rank as one process would, bit for bit, dropped weights too.
///         Ring: that to rounding, by libtorch's flash attention (of small float32 blocks under oneDNN by plain
///         products), whose parts of the softmax are merged by their log-sum-exp in float32 (float64 for float64).
/// Cost    Ulysses: one all_to_all of [B, own tokens, (heads + 2 kv_heads) d] and one of the result, and as
///         many backward; heads of keys and values that are fewer than ranks are sent several times. Ring of n
///         ranks: n - 1 exchanges of keys and values, each under way while the block before is multiplied;
///         backward n - 1 more of the same and n - 1 of their gradients.
/// Order   collectives of the axis, forward and backward. On an axis of one rank compute::causal_attention.
/// Errors  as that; throws Error(kInvalidArgument) under Ulysses for fewer heads than ranks;
///         Error(kUnsupported) for dropout in a ring.
/// Source  Jacobs et al., DeepSpeed Ulysses, arXiv 2309.14509; Liu et al., Ring Attention with Blockwise
///         Transformers, arXiv 2310.01889; Dao, FlashAttention-2, arXiv 2307.08691, for the merge.
at::Tensor causal_attention(const at::Tensor& qkv, const compute::Weight& bias,
                            const compute::AttentionOptions& options, const Places& places);

}  // namespace hanji::parallel::context
