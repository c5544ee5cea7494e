#pragma once

#include "hanji/base/json.h"
#include "hanji/topology/gpu_rates.h"

namespace hanji::topology {

/// {"device", "date", "bf16_flops", ...}: a member for each of GpuRates.
base::Json gpu_rates_json(const GpuRates& rates);

}  // namespace hanji::topology
