#pragma once

#include <cstdint>

#include "hanji/base/status.h"
#include "hanji/plan/config.h"

namespace hanji::train {

/// Numbers of a step over all ranks.
struct StepNumbers {
  int64_t steps_done = 0;  ///< This step included.
  double loss = 0;
  double gradient_norm = 0;
  int64_t num_targets = 0;  ///< Valid ones of the global batch.
};

/// The reason why a step has changed nothing: no target of the global batch is valid, so that there is no
/// loss, or loss or gradient norm is not finite.
/// Errors  kInvalidArgument, with both values and what to change.
Status skip_reason(const StepNumbers& step, const plan::TrainConfig& train);

}  // namespace hanji::train
