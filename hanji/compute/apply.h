#pragma once

#include "hanji/base/kernel_choice.h"

namespace hanji::compute {

/// Sets what the whole process keeps: how libtorch multiplies float32 matrices, the number of
/// threads of an operation, and the vector instructions of our own kernels. Only `hanji train` and
/// `hanji verify` call it, once, from the plan.
/// Errors  throws Error(kUnsupported) for instructions that this process may not use.
void apply(const base::KernelChoice& choice, int threads);

}  // namespace hanji::compute
