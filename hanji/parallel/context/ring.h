#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "hanji/layout/ring_steps.h"
#include "hanji/parallel/context/places.h"

namespace hanji::parallel::context {

/// What forward and backward of a ring walk.
struct RingLists {
  std::vector<layout::RingStep> forward, backward;
};
RingLists ring_lists(const Places& places);

/// Attention of this rank's queries on keys and values of all ranks, which pass through it: what
/// causal_attention() computes in a ring.
///
/// Shape   queries [B, H, M, d], keys and values [2, B, K, M, d] of this rank's M tokens -> [B, H, M, d].
/// Result  that of the lists: with others than ring_lists() another one.
/// Order   collectives of the axis, forward and backward.
at::Tensor ring_product(const at::Tensor& queries, const at::Tensor& keys_and_values,
                        const Places& places, RingLists lists);

}  // namespace hanji::parallel::context
