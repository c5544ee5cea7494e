#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <string>

#include "hanji/compute/device_clock.h"
#include "hanji/topology/gpu_rates.h"

namespace hanji::compute {

/// How large the products and the copies of a measurement become, at most: they are doubled until one takes a
/// millisecond.
struct GpuProbe {
  int64_t side = 8192;                      ///< Side of the square matrices.
  int64_t copy_bytes = int64_t{512} << 20;  ///< Within the device's memory.
  int64_t host_bytes = int64_t{64} << 20;   ///< From pinned memory of the host.
};

/// Products of square matrices in bf16 and float32, a copy within the device's memory, one from pinned memory,
/// the launch of a kernel of one element and the reading of one number.
///
/// Result  rates; `device` and `date` are filled in. Float32 is as libtorch multiplies it in this process.
/// Cost    `budget_seconds`, about, and the start of the device and its libraries.
/// Errors  throws what libtorch throws.
topology::GpuRates measure_gpu(c10::Device device, const DeviceClock& clock, double budget_seconds,
                               GpuProbe probe = {});

/// The name of the GPUs of this host, if all have the same; else "cuda:0", with the names that there are.
std::string gpu_name();

/// Gives the device what libtorch keeps of its memory, and forgets how much it has kept; nothing on the CPU.
void release_device_memory(c10::Device device);

}  // namespace hanji::compute
