#pragma once

#include "hanji/compute/kernels.h"

namespace hanji::compute {

/// Sets what libtorch keeps for the whole process: how float32 matrices are multiplied, and the
/// number of threads of an operation. Only `hanji train` calls it, once, from the plan.
void apply(const KernelChoice& choice, int threads);

}  // namespace hanji::compute
