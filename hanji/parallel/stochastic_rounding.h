#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>

#include "hanji/parallel/flat_optimizer.h"

namespace hanji::parallel {

/// Rounds float32 to bfloat16, up or down with the odds that make the mean exact.
///
/// Shape   `from` float32 and `to` bfloat16, contiguous, equally many elements, on the CPU.
/// Result  element i depends on (key, first + i) alone: ranks that hold parts round as one would.
///         Infinity and NaN stay what they are.
/// Errors  throws kInvalidArgument for other tensors.
void round_stochastically(const at::Tensor& from, const at::Tensor& to, uint64_t key,
                          int64_t first = 0);

/// An optimizer of bfloat16 parameters that have no float32 copy: each step is computed in float32
/// by the optimizer that `make` gives, and rounded stochastically, so that updates below half a unit
/// of the last place still count on average.
///
/// Shape   part.parameters bfloat16, part.gradients bfloat16; `first`: where the part begins in the
///         whole buffer, a part of the odds.
/// Cost    two float32 buffers of the part, and the state of the optimizer in float32.
/// Source  Gupta et al., Deep Learning with Limited Numerical Precision, ICML 2015.
std::unique_ptr<FlatOptimizer> flat_stochastic(FlatPart part, const MakeOptimizer& make,
                                               uint64_t seed, int64_t first = 0,
                                               const SumOverParts& sum = {});

}  // namespace hanji::parallel
