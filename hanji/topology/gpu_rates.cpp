#include "hanji/topology/gpu_rates.h"

#include <fmt/format.h>

#include "hanji/base/units.h"
#include "hanji/topology/gpu_rates_json.h"

namespace hanji::topology {
namespace {

/// "640 TF/s" of the unit "F/s".
std::string rate_text(double rate, const char* unit) {
  return rate >= 1e12 ? fmt::format("{:.3g} T{}", rate / 1e12, unit)
                      : fmt::format("{:.3g} G{}", rate / 1e9, unit);
}

}  // namespace

std::string gpu_rates_text(const GpuRates& rates) {
  return fmt::format(
      "measured on {}, {}: products {} in bf16, {} in float32; memory {}; from pinned memory of "
      "the host {}; a launch {}, a number read {}",
      rates.device, rates.date, rate_text(rates.bf16_flops, "F/s"),
      rate_text(rates.float32_flops, "F/s"), rate_text(rates.memory_bytes_per_second, "B/s"),
      rate_text(rates.host_bytes_per_second, "B/s"), base::format_seconds(rates.launch_seconds),
      base::format_seconds(rates.read_seconds));
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
