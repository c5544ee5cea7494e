#pragma once

#include <ATen/core/Tensor.h>

#include "hanji/compute/weight.h"

namespace hanji::compute {

/// The rows of `table` named by tokens plus the rows 0..T-1 of `positions`.
///
/// Shape   tokens [B, T] int64, table [V, C], positions [block, C] -> [B, T, C].
/// Result  gradients are summed over tokens in their order.
/// Errors  throws invalid_argument for a token outside [0, V) and for T above block.
at::Tensor embed(const at::Tensor& tokens, const Weight& table, const Weight& positions);

}  // namespace hanji::compute
