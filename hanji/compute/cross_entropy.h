#pragma once

#include <ATen/core/Tensor.h>

namespace hanji::compute {

/// The sum of -log softmax(logits)[target] over the rows whose target is not -1.
///
/// Shape   logits [N, V] contiguous, targets [N] int64 -> scalar, fp32 (fp64 for fp64 logits).
/// Result  rows are computed in fp32 (fp64) and summed in fp64, in order.
/// Cost    one pass forward; the logits are overwritten by their gradient when one is needed,
///         so backward copies nothing, and runs at most once.
/// Errors  throws invalid_argument for a target outside [-1, V).
at::Tensor cross_entropy_sum(const at::Tensor& logits, const at::Tensor& targets);

}  // namespace hanji::compute
