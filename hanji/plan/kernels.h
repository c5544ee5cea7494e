#pragma once

#include <optional>
#include <string>

#include "hanji/base/simd.h"
#include "hanji/plan/config.h"

namespace hanji::plan {

/// The kernels of a run and the measurement that chose them. Neither member is kAuto in a Plan.
struct KernelChoice {
  Gemm gemm = Gemm::kMkl;
  Attention attention = Attention::kFlash;
  Precision precision = Precision::kFloat32;
  double gemm_flops_per_second = 0;       ///< Of one rank, on the model's shapes, all ranks busy.
  double attention_flops_per_second = 0;  ///< The same; lower triangle only, so half of
                                          ///< ModelSpec::attention_flops_per_token().
  double gemm_error = 0;  ///< Largest error over the largest result, against float64.
  double attention_error = 0;
  std::string why;  ///< One sentence: what lost, and by how much.
  /// Vector instructions of hanji's own kernels, none of which runs on GPUs.
  std::optional<base::Simd> simd = {};
  /// Of float32's products, measured beside a precision below it; else 0.
  double float32_flops_per_second = 0;
  /// Of one rank, measured with the kernels; 0: not measured, and nothing is predicted for it.
  double seconds_per_operation = 0;         ///< Through libtorch's dispatcher and autograd.
  double elementwise_bytes_per_second = 0;  ///< GELU, softmax and norms on cached tensors.
  bool operator==(const KernelChoice&) const = default;
};

}  // namespace hanji::plan
