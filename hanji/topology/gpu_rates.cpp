#include "hanji/topology/gpu_rates.h"

#include <fmt/format.h>

#include "hanji/base/units.h"

namespace hanji::topology {
namespace {

std::string flops_text(double rate) {
  return rate >= 1e12 ? fmt::format("{:.3g} TF/s", rate / 1e12)
                      : fmt::format("{:.3g} GF/s", rate / 1e9);
}

std::string rate_text(double rate) { return fmt::format("{:.3g} GB/s", rate / 1e9); }

}  // namespace

std::string gpu_rates_text(const GpuRates& rates) {
  return fmt::format(
      "measured on {}, {}: products {} in bf16, {} in float32; memory {}; from pinned memory of "
      "the host {}; a launch {}, a number read {}",
      rates.device, rates.date, flops_text(rates.bf16_flops), flops_text(rates.float32_flops),
      rate_text(rates.memory_bytes_per_second), rate_text(rates.host_bytes_per_second),
      base::format_seconds(rates.launch_seconds), base::format_seconds(rates.read_seconds));
}

base::Json gpu_rates_json(const GpuRates& rates) {
  return {{"device", rates.device},
          {"date", rates.date},
          {"bf16_flops", rates.bf16_flops},
          {"float32_flops", rates.float32_flops},
          {"memory_bytes_per_second", rates.memory_bytes_per_second},
          {"host_bytes_per_second", rates.host_bytes_per_second},
          {"launch_seconds", rates.launch_seconds},
          {"read_seconds", rates.read_seconds}};
}

}  // namespace hanji::topology
