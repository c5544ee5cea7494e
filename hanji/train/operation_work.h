#pragma once

#include <cstdint>

#include "hanji/base/kernel_choice.h"
#include "hanji/plan/operation_times.h"
#include "hanji/train/busy_ranks.h"

namespace hanji::train {

/// Work that calls one operation several times, as so many layers do, each on tensors of its own:
/// what one of them reads is no warmer in the caches than it is in a step.
struct OperationWork {
  MakeWork make;
  int64_t calls = 1;
};

/// How often an operation is called that touches so many bytes and of which a step has so many.
int64_t calls_at_once(double count, int64_t bytes);

/// Forward and backward of one of hanji's own operations by the kernels that were chosen.
/// Thread  the process multiplies as compute::apply() has set.
OperationWork own_work(const plan::Operation& operation, const base::KernelChoice& kernels);

}  // namespace hanji::train
