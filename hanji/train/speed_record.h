#pragma once

#include <optional>

#include "hanji/plan/plan.h"

namespace hanji::train {

/// Writes this run's speed into base::cache_folder()/speeds.json under its job and number of ranks.
///
/// Result  tokens per second of the same job with the same kernels on one rank, if it has run on this
///         machine. Without a cache folder, nothing is written or returned.
std::optional<double> remember_speed(const plan::Plan& plan, double tokens_per_second);

}  // namespace hanji::train
