#include "hanji/compute/attention.h"

#include <ATen/ATen.h>

#include <cmath>
#include <limits>

namespace hanji::compute {
namespace {

/// Plain operations over the whole square; the only path that drops attention weights.
at::Tensor dropping_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                              const AttentionOptions& options) {
  const int64_t block = q.size(2);
  auto above = at::ones({block, block}, q.options().dtype(at::kBool)).triu(1);
  auto scores = at::matmul(q, k.transpose(2, 3)) / std::sqrt(static_cast<double>(q.size(3)));
  auto weights = scores.masked_fill(above, -std::numeric_limits<double>::infinity()).softmax(-1);
  return at::matmul(dropout(weights, options.dropout, options.key), v);
}

}  // namespace

at::Tensor causal_attention(const at::Tensor& qkv, const Weight& bias,
                            const AttentionOptions& options) {
  const int64_t batch = qkv.size(0), block = qkv.size(1), width = qkv.size(2) / 3;
  auto heads = (qkv + bias.value.to(qkv.scalar_type()))
                   .view({batch, block, 3, options.heads, width / options.heads})
                   .permute({2, 0, 3, 1, 4});
  auto q = heads[0], k = heads[1], v = heads[2];
  auto out = options.dropout > 0
                 ? dropping_attention(q, k, v, options)
                 : at::scaled_dot_product_attention(q, k, v, std::nullopt, 0.0, /*is_causal=*/true);
  return out.transpose(1, 2).reshape({batch, block, width});
}

}  // namespace hanji::compute
