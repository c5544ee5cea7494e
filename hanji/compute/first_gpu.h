#pragma once

#include <optional>
#include <string>

#include "hanji/topology/gpu_rates.h"

namespace hanji::compute {

/// The rates of a GPU, or why there are none, in a clause.
struct FirstGpu {
  std::optional<topology::GpuRates> rates;
  std::string why_not;
};

/// Measures the first GPU that this process may use, by measure_gpu(): for commands that show rates. The process
/// keeps some hundred MiB of its memory until it ends.
///
/// Cost    about a second, and the start of the device and its libraries; nothing without a GPU.
/// Errors  none: what libtorch throws is the reason.
FirstGpu measure_first_gpu();

}  // namespace hanji::compute
