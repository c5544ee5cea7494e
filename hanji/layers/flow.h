#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <vector>

namespace hanji::layers {

/// The tensors between two layers: one to four defined tensors, empty before layer 0. A pipeline sends
/// them between stages, and recomputation keeps them.
using Flow = std::vector<at::Tensor>;
inline constexpr size_t kMaxFlowTensors = 4;

/// The sum, not the mean, of the losses of a batch's valid targets.
struct LossSum {
  at::Tensor sum;     ///< Scalar, float32 (float64 under float64).
  int64_t count = 0;  ///< Valid targets; the sum is divided once by their sum over all ranks.
};

/// The remaining forward of a layer within its scope. It may be stored and called again until the
/// layer's backward has ended.
using RunLayer = std::function<Flow(Flow)>;

/// A function around each layer, given by the caller of Model::forward(): recomputation, spans, calls
/// of sharded units. A scope calls `run` once, or stores it as described there, and returns its flow.
using LayerScope = std::function<Flow(int64_t layer, Flow flow, const RunLayer& run)>;

}  // namespace hanji::layers
