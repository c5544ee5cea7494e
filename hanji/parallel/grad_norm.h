#pragma once

#include <ATen/core/Tensor.h>

#include "hanji/layout/flat.h"

namespace hanji::parallel {

/// The Euclidean norm of all gradients together.
///
/// Shape   `flat` float32 or float64 in `layout`; padding is not read.
/// Result  squares are summed in double, one partial sum per 1024 elements counted from each
///         parameter's start, and the partial sums in a tree that splits at the largest power of
///         two below its length: the bits depend on the parameters alone, not on buckets or ranks.
///         NaN or infinity where a gradient is not finite.
/// Cost    one pass over the gradients.
double grad_norm(const at::Tensor& flat, const layout::FlatLayout& layout);

/// What to divide gradients by so that their norm is at most `max_norm`: 1, or
/// (norm + 1e-6) / max_norm, as torch's clip_grad_norm_. `max_norm` <= 0 means no clipping.
double clip_divisor(double norm, double max_norm);

}  // namespace hanji::parallel
