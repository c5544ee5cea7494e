#include "hanji/train/skip_reason.h"

#include <fmt/format.h>

#include "hanji/base/units.h"

namespace hanji::train {

Status skip_reason(const StepNumbers& step, const plan::TrainConfig& train) {
  if (step.num_targets == 0) {
    return base::invalid_argument(fmt::format(
        "step {}: no target of its {} is valid (the loss ignores or masks all of them), so there "
        "is no loss; mend the targets, or set train.nan = skip to leave such steps out",
        step.steps_done, base::counted(train.global_batch, "sample")));
  }
  return base::invalid_argument(
      fmt::format("step {}: loss {} and gradient norm {} are not both finite on any rank; lower "
                  "train.learning_rate = {}, or set train.nan = skip to leave such steps out",
                  step.steps_done, step.loss, step.gradient_norm, train.learning_rate));
}

}  // namespace hanji::train
