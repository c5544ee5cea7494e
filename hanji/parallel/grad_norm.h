#pragma once

#include <ATen/core/Tensor.h>

#include <span>
#include <vector>

#include "hanji/layout/flat.h"

namespace hanji::parallel {

/// The Euclidean norm of all gradients together.
///
/// Shape   `flat` float32 or float64 in `layout`; padding is not read.
/// Result  squares are summed in double, one partial sum per 1024 elements counted from each
///         parameter's start, and the partial sums in a tree that splits at the largest power of
///         two below its length: the bits depend on the parameters alone, not on buckets or ranks.
///         NaN or infinity where a gradient is not finite. On another device than the CPU that
///         device's own sums, in double: the same bits from call to call, not those of the CPU.
/// Cost    one pass over the gradients.
double grad_norm(const at::Tensor& flat, const layout::FlatLayout& layout);

/// Scales the gradients of `parameters` in place so that their norm together is at most `max_norm`;
/// those without a gradient are left out. With data_parallel() every rank holds the same gradients
/// after backward(), and so does the same without a word to the others.
///
/// Shape   any dense floating dtype on the CPU; norms of 16-bit gradients are taken in float32.
/// Result  the norm before, with the bits of grad_norm(). Where it is not finite, and where it is
///         at most max_norm or max_norm <= 0, no gradient has changed.
/// Errors  throws Error(kUnsupported), before anything has changed, for other gradients.
double clip_grad_norm(std::span<const at::Tensor> parameters, double max_norm);

/// The partial sums of one gradient, as grad_norm() takes them, or of a piece of it that begins at
/// a multiple of 1024 elements: the norm of gradients that lie on several ranks is made of these.
///
/// Errors  throws as clip_grad_norm().
std::vector<double> norm_blocks(const at::Tensor& gradient);
/// The norm of all partial sums together, those of each parameter in order.
double norm_of_blocks(std::span<const double> partial_sums);

/// What to divide gradients by so that their norm is at most `max_norm`: 1, or
/// (norm + 1e-6) / max_norm, as torch's clip_grad_norm_. `max_norm` <= 0 means no clipping.
double clip_divisor(double norm, double max_norm);

}  // namespace hanji::parallel
