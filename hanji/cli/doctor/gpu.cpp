#include "hanji/cli/doctor/gather.h"
#include "hanji/compute/first_gpu.h"

namespace hanji::cli {

Findings measure_gpu() {
  const compute::FirstGpu gpu = compute::measure_first_gpu();
  if (!gpu.rates) return {{"gpu", "rates", "none measured: " + gpu.why_not}};
  return {{"gpu", "rates", topology::gpu_rates_text(*gpu.rates)}};
}

}  // namespace hanji::cli
