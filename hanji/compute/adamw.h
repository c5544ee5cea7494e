#pragma once

#include <ATen/core/Tensor.h>

namespace hanji::compute {

/// An update of AdamW as it is the same for all elements.
struct AdamWStep {
  double learning_rate = 0;
  double beta1 = 0, beta2 = 0;
  double epsilon = 0;
  double weight_decay = 0;
  double gradient_divisor = 1;
  int64_t update = 1;  ///< Counted from one.
};

/// What one update reads and writes, element by element: float32 on the CPU, contiguous, of equal sizes.
struct AdamWTensors {
  at::Tensor parameter;
  at::Tensor gradient;  ///< Is only read.
  at::Tensor first_moment, second_moment;
  at::Tensor rounded =
      {};  ///< bf16: receives the parameter, rounded to nearest even; undefined: nothing.
};

/// Updates all elements once.
///
/// Result  the bits of at::_fused_adamw_() where both have fused multiply-add (avx2, avx512), on any threads.
/// Cost    28 bytes of memory traffic per element and 2 for `rounded`, one pass.
/// Errors  throws kInvalidArgument for tensors of other dtypes, devices, sizes or strides.
void adamw_update(const AdamWTensors& tensors, const AdamWStep& step);

}  // namespace hanji::compute
