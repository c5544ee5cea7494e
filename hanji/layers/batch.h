#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>

#include "hanji/layout/range.h"

namespace hanji::layers {

/// Keys of the random numbers of a forward, besides layer and element. A dropout mask depends on the
/// masked element, not on the rank or the order of computation.
struct Counters {
  uint64_t seed = 0;
  int64_t step = 0;
};

/// One micro-batch: all inputs of a model's layers and loss besides the flow. Every stage of a pipeline
/// has the batch of its micro-batch; only the flow is sent.
///
/// Shape   inputs [B, ...] for the model's first layer; targets [B, ...] for its loss: int64 for
///         hanji's own models, where negative targets are ignored.
struct Batch {
  at::Tensor inputs;
  at::Tensor targets;
  layout::Range positions;  ///< Of the samples in the global batch.
  int64_t num_valid = 0;    ///< Number of targets that are not ignored.
  Counters counters = {};

  int64_t size() const { return positions.size(); }
  /// The same on `device`; itself if it is there. Without blocking, the host goes on beside a copy from
  /// pinned memory.
  Batch to(c10::Device device, bool non_blocking = false) const {
    return {inputs.to(device, non_blocking), targets.to(device, non_blocking), positions, num_valid,
            counters};
  }
};

}  // namespace hanji::layers
