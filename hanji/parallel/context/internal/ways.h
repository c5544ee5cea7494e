#pragma once

#include "hanji/parallel/context/attention.h"

namespace hanji::parallel::context::internal {

/// causal_attention() on several ranks, by the name of its way.
at::Tensor ulysses_attention(const at::Tensor& qkv, const compute::Weight& bias,
                             const compute::AttentionOptions& options, const Places& places);
at::Tensor ring_attention(const at::Tensor& qkv, const compute::Weight& bias,
                          const compute::AttentionOptions& options, const Places& places);

}  // namespace hanji::parallel::context::internal
