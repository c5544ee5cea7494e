#pragma once

#include "hanji/compute/kernels.h"
#include "hanji/plan/kernels.h"

namespace hanji::train {

/// The same choice in the words of the plan, which does not know torch, and of compute.
plan::KernelChoice to_plan(const compute::KernelChoice& choice);
compute::KernelChoice to_compute(const plan::KernelChoice& choice);

}  // namespace hanji::train
