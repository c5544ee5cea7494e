#include "hanji/compute/first_gpu.h"

#include <exception>

#include "hanji/compute/device.h"
#include "hanji/compute/measure_gpu.h"

namespace hanji::compute {

FirstGpu measure_first_gpu() {
  const Gpus gpus = find_gpus();
  if (gpus.count == 0) return {{}, gpus.why_none};
  constexpr double kSeconds = 1;
  try {
    const c10::Device device = gpu_of(0, gpus).or_throw();
    use_gpu(device, Repeatable::kNo);
    return {measure_gpu(device, device_clock(device), kSeconds), ""};
  } catch (const std::exception& error) {
    const std::string what = error.what();
    return {{}, what.substr(0, what.find('\n'))};
  }
}

}  // namespace hanji::compute
