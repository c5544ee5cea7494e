#pragma once

#include <string>

namespace hanji::topology {

/// What one GPU was measured to do. A rate of 0 was not measured.
struct GpuRates {
  std::string device;        ///< Its name, as the driver's library has it.
  std::string date;          ///< Day of the measurement, YYYY-MM-DD.
  double bf16_flops = 0;     ///< Floating operations per second of a large product in bf16,
  double float32_flops = 0;  ///< and in float32, as libtorch multiplies it here.
  double memory_bytes_per_second = 0;  ///< Read and written by a copy within its memory, together.
  double host_bytes_per_second = 0;    ///< From pinned memory of the host.
  double launch_seconds = 0;           ///< What the host takes to queue one small kernel.
  double read_seconds = 0;             ///< Until the host has a number from an idle device.
  bool operator==(const GpuRates&) const = default;
};

/// "measured on NVIDIA H200, 2026-01-31: products 640 TF/s in bf16, ...". One line.
std::string gpu_rates_text(const GpuRates& rates);

}  // namespace hanji::topology
