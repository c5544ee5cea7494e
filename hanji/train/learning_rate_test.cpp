#include "hanji/train/learning_rate.h"

#include <gtest/gtest.h>

namespace hanji::train {
namespace {

plan::TrainConfig config(plan::LearningRateSchedule schedule) {
  plan::TrainConfig train;
  train.steps = 101;
  train.warmup_steps = 10;
  train.learning_rate = 1.0;
  train.min_learning_rate = 0.1;
  train.schedule = schedule;
  return train;
}

TEST(LearningRate, WarmsUpLinearlyAndNeverIsZero) {
  const auto train = config(plan::LearningRateSchedule::kConstant);
  EXPECT_DOUBLE_EQ(learning_rate(train, 0), 0.1);
  EXPECT_DOUBLE_EQ(learning_rate(train, 4), 0.5);
  EXPECT_DOUBLE_EQ(learning_rate(train, 9), 1.0);
  EXPECT_DOUBLE_EQ(learning_rate(train, 100), 1.0);
}

TEST(LearningRate, CosineIsHalfWayDownInTheMiddleAndLowAtTheEnd) {
  const auto train = config(plan::LearningRateSchedule::kCosine);
  EXPECT_DOUBLE_EQ(learning_rate(train, 10), 1.0);
  EXPECT_NEAR(learning_rate(train, 55), 0.55, 1e-12);
  EXPECT_DOUBLE_EQ(learning_rate(train, 100), 0.1);
}

TEST(LearningRate, WarmupStableDecayFallsOnlyInTheLastFifth) {
  const auto train = config(plan::LearningRateSchedule::kWarmupStableDecay);
  EXPECT_DOUBLE_EQ(learning_rate(train, 80), 1.0);
  EXPECT_DOUBLE_EQ(learning_rate(train, 81), 1.0);
  EXPECT_LT(learning_rate(train, 82), 1.0);
  EXPECT_DOUBLE_EQ(learning_rate(train, 100), 0.1);
}

TEST(LearningRate, OneStepWithoutWarmupUsesTheFullRate) {
  auto train = config(plan::LearningRateSchedule::kCosine);
  train.steps = 1;
  train.warmup_steps = 0;
  EXPECT_DOUBLE_EQ(learning_rate(train, 0), 1.0);
}

}  // namespace
}  // namespace hanji::train
