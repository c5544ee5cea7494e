#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>

#include "hanji/parallel/flat_optimizer.h"

namespace hanji::parallel {

/// Rounds float32 to bfloat16, up or down with the probabilities that make the mean exact.
///
/// Shape   `from` float32 and `to` bfloat16, contiguous, equally many elements, on the CPU.
/// Result  element i depends only on (key, first + i): ranks with parts round as one rank would.
///         Infinity and NaN are not changed.
/// Errors  throws kInvalidArgument for other tensors.
void round_stochastically(const at::Tensor& from, const at::Tensor& to, uint64_t key,
                          int64_t first = 0);

/// An optimizer of bfloat16 parameters without a float32 copy. The optimizer of `make` computes each
/// step in float32; the result is rounded stochastically, so that updates below half a unit in the
/// last place have an effect on average.
///
/// Shape   part.parameters bfloat16, part.gradients bfloat16; `first`: the start of the part in the
///         whole buffer, on which the rounding depends.
/// Cost    two float32 buffers of the part, and the state of the optimizer in float32.
/// Source  Gupta et al., Deep Learning with Limited Numerical Precision, ICML 2015.
std::unique_ptr<FlatOptimizer> flat_stochastic(FlatPart part, const MakeOptimizer& make,
                                               uint64_t seed, int64_t first = 0,
                                               const SumOverParts& sum = {});

}  // namespace hanji::parallel
