#include "hanji/train/learning_rate.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace hanji::train {
namespace {

/// How far `step` has come from `begin` to the last step, in [0, 1].
double progress(int64_t step, int64_t begin, int64_t steps) {
  const auto length = static_cast<double>(std::max<int64_t>(1, steps - 1 - begin));
  return std::clamp(static_cast<double>(step - begin) / length, 0.0, 1.0);
}

}  // namespace

double learning_rate(const plan::TrainConfig& train, int64_t step) {
  if (step < train.warmup_steps) {
    return train.learning_rate * static_cast<double>(step + 1) /
           static_cast<double>(train.warmup_steps);
  }
  const double fall = train.learning_rate - train.min_learning_rate;
  switch (train.schedule) {
    case plan::LearningRateSchedule::kConstant: return train.learning_rate;
    case plan::LearningRateSchedule::kCosine: {
      const double done = progress(step, train.warmup_steps, train.steps);
      return train.min_learning_rate + fall * (1 + std::cos(std::numbers::pi * done)) / 2;
    }
    case plan::LearningRateSchedule::kWarmupStableDecay: {
      const int64_t decay_begin = std::max(train.warmup_steps, train.steps - train.steps / 5);
      if (step < decay_begin) return train.learning_rate;
      return train.learning_rate - fall * progress(step, decay_begin, train.steps);
    }
  }
  return train.learning_rate;
}

}  // namespace hanji::train
