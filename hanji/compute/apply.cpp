#include "hanji/compute/apply.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>

#include "hanji/compute/internal/gemm_switch.h"

namespace hanji::compute {

void apply(const KernelChoice& choice, int threads) {
  at::set_num_threads(threads);
  at::globalContext().setFloat32MatmulPrecision(precision_of(choice.gemm));
}

}  // namespace hanji::compute
