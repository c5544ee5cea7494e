#pragma once

#include "hanji/compute/weight.h"

namespace hanji::compute {

/// x times the transposed weight, without a bias: the operation after it adds that on its way.
///
/// Shape   x [..., K], weight [N, K] -> [..., N], in x's dtype, as value_in() has the weight; a cast lives until
///         the end of the backward.
/// Result  the rows of the input may be split anywhere without changing a bit.
/// Cost    one matrix product forward, two backward; no copy of weight or gradient. DeferGradients defers
///         that of the weight.
at::Tensor linear(const at::Tensor& x, const Weight& weight);

}  // namespace hanji::compute
