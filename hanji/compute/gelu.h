#pragma once

#include "hanji/compute/weight.h"

namespace hanji::compute {

/// GELU in its tanh form of x + bias, with one pass over memory in each direction.
///
/// Shape   x [..., N], bias [N] -> as x, same dtype; fp32, fp64 and bf16 (computed in fp32).
/// Result  within 4 units in the last place of the formula in exact arithmetic; the bias'
///         gradient is summed over rows in one fixed order, in fp32 or fp64.
/// Source  Hendrycks and Gimpel, Gaussian Error Linear Units, arXiv 1606.08415.
at::Tensor bias_gelu(const at::Tensor& x, const Weight& bias);

}  // namespace hanji::compute
