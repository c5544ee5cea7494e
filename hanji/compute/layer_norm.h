#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include "hanji/compute/weight.h"

namespace hanji::compute {

struct LayerNorm {
  Weight weight;
  Weight bias;
  double epsilon = 1e-5;
};

/// What a branch adds to the residual stream: its output and the bias it still lacks.
/// Either may be undefined.
struct Delta {
  at::Tensor value;
  Weight bias;
};

struct Normed {
  at::Tensor sum;     ///< residual + delta.value + delta.bias, in the residual's dtype.
  at::Tensor normed;  ///< layer_norm(sum) in `dtype`.
};

/// Adds a branch to the residual stream and normalises the sum, with one pass over memory.
///
/// Shape   residual and delta.value [..., C]; bias and weights [C] -> both [..., C].
/// Result  mean and variance over C in the residual's dtype (fp32 or fp64), two passes over the
///         row in registers; a row's bits do not depend on other rows. Gradients of weights sum
///         over rows in one fixed order.
Normed add_layer_norm(const at::Tensor& residual, const Delta& delta, const LayerNorm& norm,
                      c10::ScalarType dtype);

}  // namespace hanji::compute
