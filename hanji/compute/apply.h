#pragma once

#include <memory>

#include "hanji/base/kernel_choice.h"

namespace hanji::compute {

/// Sets what the whole process keeps: how libtorch multiplies float32 matrices, the number of
/// threads of an operation, how the gradients of weights come of bf16, and the vector instructions of our own
/// kernels. Only `hanji train` and
/// `hanji verify` call it, once, from the plan.
/// Errors  throws Error(kUnsupported) for instructions that this process may not use, and as check_products(),
///         check_attention() and use_weight_gradient().
void apply(const base::KernelChoice& choice, int threads);

class SwitchGuard;

/// apply() without the instructions, until the end of this object: for measurements.
class AppliedForAWhile {
 public:
  AppliedForAWhile(const base::KernelChoice& choice, int threads);
  ~AppliedForAWhile();
  AppliedForAWhile(const AppliedForAWhile&) = delete;
  AppliedForAWhile& operator=(const AppliedForAWhile&) = delete;

 private:
  std::unique_ptr<SwitchGuard> before_;
  base::WeightGradient gradient_before_;
};

}  // namespace hanji::compute
