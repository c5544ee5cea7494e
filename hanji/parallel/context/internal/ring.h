#pragma once

#include <vector>

#include "hanji/layout/ring_steps.h"
#include "hanji/parallel/context/places.h"

namespace hanji::parallel::context::internal {

/// What forward and backward walk.
struct RingLists {
  std::vector<layout::RingStep> forward, backward;
};
RingLists ring_lists(const Places& places);

/// Attention of this rank's queries [B, H, M, d] on keys and values [2, B, K, M, d] of all ranks.
at::Tensor ring_product(const at::Tensor& queries, const at::Tensor& keys_and_values,
                        const Places& places, RingLists lists);

}  // namespace hanji::parallel::context::internal
