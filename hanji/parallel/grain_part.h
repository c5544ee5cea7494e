#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace hanji::parallel {

/// Parameters that a backward() of their own reaches: those of a stage of a pipeline.
struct GrainPart {
  std::vector<at::Tensor> parameters = {};
  /// For stable bits: this rank's, in the order of their backwards; empty: ascending.
  std::vector<int64_t> grains = {};
};

}  // namespace hanji::parallel
