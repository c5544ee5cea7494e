#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace hanji::parallel {

/// Parameters that a backward() of their own reaches: those of a stage of a pipeline.
struct GrainPart {
  std::vector<at::Tensor> parameters;
  std::vector<int64_t> grains;  ///< This rank's, in the order of their backwards; empty: ascending.
};

}  // namespace hanji::parallel
