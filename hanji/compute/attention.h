#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "hanji/base/kernel_choice.h"
#include "hanji/base/status.h"
#include "hanji/compute/dropout.h"
#include "hanji/compute/weight.h"

namespace hanji::compute {

using base::Attention;

/// Whether this process computes attention so, in `precision`.
/// Errors  unsupported, with the way out: tiles of float32 or float64, or on a processor for which libtorch
///         has no product of bf16 tiles (it takes AVX-512 or AMX).
/// Cost    its first call multiplies two small matrices.
Status check_attention(Attention attention, base::Precision precision);

struct AttentionOptions {
  int64_t heads = 1;  ///< Of queries.
  Attention attention = Attention::kMath;
  double dropout = 0;  ///< Of the attention weights.
  DropoutKey key = {};
  int64_t kv_heads = 0;  ///< Of keys and values, a divisor of heads; 0: as many.
};

/// Causal self-attention on the output of the projection to queries, keys and values, which
/// still lacks its bias: softmax(q k^T / sqrt(d), keys up to the query's position) v.
///
/// With fewer heads of keys and values than of queries, those of queries share them in groups, one
/// after another: query head h takes head h * kv_heads / heads. Nothing is repeated in memory.
///
/// Shape   qkv [B, T, (heads + 2 kv_heads) d], bias of its last dimension -> [B, T, heads d].
/// Result  the paths agree to rounding; kMath and kTiles keep one order of sums per element, the same
///         for every batch size. kTiles rounds queries, keys, values, weights and their gradients to
///         bf16 before a product. Dropout above 0 takes plain operations.
/// Cost    kMath: 7 products of T x T x C, lower triangle only (2 forward, 5 backward), nothing
///         of T x T kept. kTiles: the same, in bf16; 32 T C more each for whole tiles. kFlash: the same
///         products over the whole square of a block row.
/// Errors  throws Error(kInvalidArgument) for heads that do not fit each other or qkv; kUnsupported for
///         kTiles as check_attention(), of tensors on other devices too.
/// Source  Dao et al., FlashAttention, arXiv 2205.14135 (weights recomputed from row sums); Ainslie et
///         al., GQA, arXiv 2305.13245.
at::Tensor causal_attention(const at::Tensor& qkv, const Weight& bias,
                            const AttentionOptions& options);

}  // namespace hanji::compute
