#include "hanji/compute/apply.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>

#include "hanji/compute/attention.h"
#include "hanji/compute/internal/gemm_switch.h"
#include "hanji/compute/internal/switch_guard.h"
#include "hanji/compute/measure.h"
#include "hanji/compute/product.h"

namespace hanji::compute {

void apply(const base::KernelChoice& choice, int threads) {
  if (choice.simd) base::throw_if_error(base::use_simd(*choice.simd).at("the plan's kernels"));
  base::throw_if_error(check_products(choice).at("the plan's kernels"));
  base::throw_if_error(
      check_attention(choice.attention, choice.precision).at("the plan's kernels"));
  at::set_num_threads(threads);
  at::globalContext().setFloat32MatmulPrecision(precision_of(choice.gemm));
  use_weight_gradient(choice.weight_gradient);
}

AppliedForAWhile::AppliedForAWhile(const base::KernelChoice& choice, int threads)
    : before_(std::make_unique<SwitchGuard>(choice.gemm, threads)),
      gradient_before_(weight_gradient_in_use()) {
  use_weight_gradient(choice.weight_gradient);
}

AppliedForAWhile::~AppliedForAWhile() { use_weight_gradient(gradient_before_); }

}  // namespace hanji::compute
