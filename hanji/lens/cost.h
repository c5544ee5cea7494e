#pragma once

#include <cstdint>

#include "hanji/lens/operation.h"

namespace hanji::lens {

/// Floating-point operations of a call that is about to be made: two per multiplication and addition
/// of matrix products, convolutions, attention (over the whole square, masked or not), recurrent
/// layers and einsum of two tensors, forward and backward. 0 for all else, which moves bytes.
///
/// Order   in before(): from the shapes of the arguments.
double flops(const Operation& operation);

/// Bytes of the tensors among arguments (before the call) or results (after it); 0 for a view. A
/// result that an operation wrote in place counts as written.
int64_t moved_bytes(const Operation& operation);

}  // namespace hanji::lens
