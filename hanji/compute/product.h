#pragma once

#include <ATen/core/Tensor.h>

#include "hanji/base/kernel_choice.h"
#include "hanji/base/status.h"

namespace hanji::compute {

/// Writes left times right into `out`, which may be float32 where they are bf16: then the sums are rounded to bf16
/// and widened, unless use_weight_gradient() says kFloat32.
///
/// Shape   left [m, k], right [k, n], out [m, n]; rows of `out` may lie apart.
/// Result  with kFloat32 on the CPU, bits that depend on neither the number of threads nor where the matrices lie.
/// Cost    one product; rounded, a copy of `out` in bf16 besides.
void product_out(const at::Tensor& out, const at::Tensor& left, const at::Tensor& right);

/// Whether libtorch brings a product of bf16 factors with results in float32, for the CPU.
bool has_float32_results();

/// Errors  kUnsupported for kFloat32 without has_float32_results().
Status check_weight_gradient(base::WeightGradient gradient);

/// Makes product_out() work so in all threads of this process, which apply() does; at first kRounded.
/// Errors  throws what check_weight_gradient() returns.
void use_weight_gradient(base::WeightGradient gradient);

base::WeightGradient weight_gradient_in_use();

}  // namespace hanji::compute
