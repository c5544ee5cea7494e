#pragma once

#include "hanji/parallel/flat_optimizer.h"
#include "hanji/plan/plan.h"

namespace hanji::train {

/// The optimizer of a plan in the words of parallel.
inline parallel::AdamWOptions adamw_options(const plan::Plan& plan) {
  const plan::TrainConfig& train = plan.config.train;
  return {.beta1 = train.beta1, .beta2 = train.beta2};
}

}  // namespace hanji::train
