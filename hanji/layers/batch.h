#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>

#include "hanji/layout/range.h"

namespace hanji::layers {

/// Keys of the random numbers of a forward, beside layer and element: a dropout mask depends on what
/// it masks, never on which rank computes it or in which order.
struct Counters {
  uint64_t seed = 0;
  int64_t step = 0;
};

/// One micro-batch: everything that the layers and the loss of a model read beside the flow. Every
/// stage of a pipeline has the batch of its micro-batch; only the flow is sent.
///
/// Shape   inputs [B, ...], as the model's first layer takes them; targets [B, ...] as its loss takes
///         them: of hanji's own models int64, of which negative ones do not count.
struct Batch {
  at::Tensor inputs;
  at::Tensor targets;
  layout::Range positions;  ///< Of the samples within the global batch.
  int64_t num_valid = 0;    ///< Targets that count.
  Counters counters = {};

  int64_t size() const { return positions.size(); }
  Batch to(c10::Device device) const {
    return {inputs.to(device), targets.to(device), positions, num_valid, counters};
  }
};

}  // namespace hanji::layers
