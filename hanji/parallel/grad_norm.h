#pragma once

#include <ATen/core/Tensor.h>

#include <span>
#include <vector>

#include "hanji/layout/flat.h"

namespace hanji::parallel {

/// Returns the Euclidean norm of all gradients.
///
/// Shape   `flat` float32 or float64 in `layout`; padding is not read.
/// Result  squares are summed in double, one partial sum per 1024 elements counted from each
///         parameter's start, and the partial sums in a tree that splits at the largest power of
///         two below its length: the bits depend only on the parameters, not on buckets or ranks.
///         NaN or infinity if a gradient is not finite. On another device, sums of that device in
///         double: the same bits in each call, but not those of the CPU.
/// Cost    one pass over the gradients.
double grad_norm(const at::Tensor& flat, const layout::FlatLayout& layout);

/// Scales the gradients of `parameters` in place so that their total norm is at most `max_norm`.
/// Skips parameters without a gradient, and counts one that is given several times once: with tied
/// weights `net->parameters()` may be given. With data_parallel() every rank has the same gradients after
/// backward(), so no communication is needed.
///
/// Shape   any dense floating dtype on the CPU; norms of 16-bit gradients are taken in float32.
/// Result  the norm before scaling, with the bits of grad_norm(). If it is not finite, or at most
///         max_norm, or if max_norm <= 0, no gradient changes.
/// Errors  throws Error(kUnsupported), before any change, for other gradients.
double clip_grad_norm(std::span<const at::Tensor> parameters, double max_norm);

/// Returns the gradients of those parameters that have one, each once: tied weights are one parameter
/// under several names, of which module.parameters() gives all.
std::vector<at::Tensor> distinct_gradients(std::span<const at::Tensor> parameters);

/// Scales gradients whose total norm is `norm` as clip_grad_norm() does.
void scale_to_norm(std::span<const at::Tensor> parameters, double norm, double max_norm);

/// Returns the partial sums of grad_norm() for one gradient, or for a piece of it that begins at a
/// multiple of 1024 elements. The norm of sharded gradients is computed from these.
///
/// Errors  throws as clip_grad_norm().
std::vector<double> norm_blocks(const at::Tensor& gradient);
/// Returns the norm from all partial sums, those of each parameter in order.
double norm_of_blocks(std::span<const double> partial_sums);
/// Returns its square.
double sum_of_blocks(std::span<const double> partial_sums);

/// Returns the divisor of gradients for a norm of at most `max_norm`: 1, or
/// (norm + 1e-6) / max_norm, as torch's clip_grad_norm_. `max_norm` <= 0 means no clipping.
double clip_divisor(double norm, double max_norm);

}  // namespace hanji::parallel
