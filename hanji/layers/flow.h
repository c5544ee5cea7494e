#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <vector>

namespace hanji::layers {

/// What one layer passes on to the next: one to four defined tensors, empty before layer 0. It is all
/// that a pipeline sends between stages and that recomputation keeps.
using Flow = std::vector<at::Tensor>;
inline constexpr size_t kMaxFlowTensors = 4;

/// The sum, not the mean, of the losses of a batch's valid targets.
struct LossSum {
  at::Tensor sum;     ///< Scalar, float32 (float64 under float64).
  int64_t count = 0;  ///< Valid targets: what the sum is divided by, over all ranks, once.
};

/// The rest of a layer's forward, as its scope sees it. It may be kept and called again until the
/// backward of the layer is over.
using RunLayer = std::function<Flow(Flow)>;

/// What a caller of Model::forward() puts around each layer: recomputation, spans, calls of sharded
/// units. A scope calls `run` once, or keeps it as described there, and returns its flow.
using LayerScope = std::function<Flow(int64_t layer, Flow flow, const RunLayer& run)>;

}  // namespace hanji::layers
