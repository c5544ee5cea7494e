#include "hanji/report/scaling_law.h"

#include <gmock/gmock.h>

#include <cmath>

#include "hanji/base/random.h"
#include "hanji/report/test_normal.h"

namespace hanji::report {
namespace {

using test_run::normal;

/// The job of the tables: T(p) = 0.05 + 0.95 / p + 0.004 (p - 1).
constexpr ScalingLaw kTruth{.serial = 0.05, .shared = 0.95, .latency = 0.004};

/// Runs of these sizes by `truth`, with a noise of 1 % in each part of each step.
std::vector<ScalingSeries> drawn_runs(const ScalingLaw& truth, const std::vector<int>& sizes,
                                      uint64_t seed, size_t steps = 60) {
  std::vector<ScalingSeries> runs;
  for (const int ranks : sizes) {
    ScalingSeries run{.ranks = ranks, .steps = {}};
    const uint64_t key = base::mix(seed, ranks);
    for (size_t i = 0; i < steps; ++i) {
      run.steps.push_back({truth.compute(ranks) * (1 + 0.01 * normal(key, 3 * i)),
                           truth.transfer(ranks) * (1 + 0.01 * normal(key, 3 * i + 1)),
                           truth.skew(ranks) * (1 + 0.01 * normal(key, 3 * i + 2))});
    }
    runs.push_back(std::move(run));
  }
  return runs;
}

double speed_up_by(const std::vector<ScalingSeries>& runs, int ranks, bool has_parts = true) {
  return fit_scaling(scaling_points(runs), BatchRule::kFixed, has_parts).speed_up(ranks);
}

TEST(ScalingLaw, OfOneTwoAndFourRanksPredictsEight) {
  const auto runs = drawn_runs(kTruth, {1, 2, 4}, 1);
  EXPECT_NEAR(kTruth.speed_up(8), 5.08, 0.01);
  EXPECT_NEAR(speed_up_by(runs, 8), kTruth.speed_up(8), 0.03 * kTruth.speed_up(8));
  const auto interval = speed_up_interval(resampled_laws(runs, BatchRule::kFixed), 8);
  EXPECT_LE(interval.low, kTruth.speed_up(8));
  EXPECT_GE(interval.high, kTruth.speed_up(8));
  EXPECT_LT(interval.high - interval.low, 0.5);
}

TEST(ScalingLaw, IntervalsHoldTheTruthAsOftenAsTheySay) {
  // 90 % of 100 have a deviation of 3 %; less than 85 % has a chance of 1 in 20.
  int held = 0;
  for (uint64_t seed = 0; seed < 100; ++seed) {
    const auto runs = drawn_runs(kTruth, {1, 2, 4}, seed, 40);
    const auto interval = speed_up_interval(resampled_laws(runs, BatchRule::kFixed), 8);
    held += interval.low <= kTruth.speed_up(8) && kTruth.speed_up(8) <= interval.high;
  }
  EXPECT_GE(held, 85);
}

TEST(ScalingLaw, AmdahlAlonePromisesMore) {
  const ScalingLaw law =
      fit_scaling(scaling_points(drawn_runs(kTruth, {1, 2, 4}, 1)), BatchRule::kFixed);
  EXPECT_NEAR(law.serial_share(), 0.05, 0.01);
  EXPECT_NEAR(law.bound(8), 1 / (0.05 + 0.95 / 8), 0.2);
  EXPECT_GT(law.bound(8), law.speed_up(8));
}

TEST(ScalingLaw, EveryTermIsFound) {
  const ScalingLaw truth{.serial = 0.1, .shared = 2, .latency = 0.01, .volume = 0.2, .noise = 0.03};
  const ScalingLaw law =
      fit_scaling(scaling_points(drawn_runs(truth, {1, 2, 4, 8, 16}, 1, 400)), BatchRule::kFixed);
  EXPECT_NEAR(law.serial, truth.serial, 0.01);
  EXPECT_NEAR(law.shared, truth.shared, 0.02);
  EXPECT_NEAR(law.latency, truth.latency, 0.001);
  EXPECT_NEAR(law.volume, truth.volume, 0.01);
  EXPECT_NEAR(law.noise, truth.noise, 0.001);
}

TEST(ScalingLaw, WithoutPartsTheWholeStepIsFitted) {
  auto runs = drawn_runs(kTruth, {1, 2, 4, 8}, 1);
  for (ScalingSeries& run : runs) {
    for (ScalingStep& step : run.steps) step = {.compute = step.seconds()};
  }
  EXPECT_NEAR(speed_up_by(runs, 16, false), kTruth.speed_up(16), 0.1 * kTruth.speed_up(16));
}

TEST(ScalingLaw, TheShortestStepIsAtTheRootOfSharedOverLatency) {
  EXPECT_EQ(kTruth.best_ranks(1000), 15);  // sqrt(0.95 / 0.004) = 15.4
  EXPECT_EQ(kTruth.best_ranks(4), 4);
}

TEST(ScalingLaw, OfABatchThatGrowsRanksHaveOneWork) {
  const ScalingLaw truth{.batch = BatchRule::kGrows, .shared = 1, .latency = 0.01};
  const ScalingLaw law =
      fit_scaling(scaling_points(drawn_runs(truth, {1, 2, 4}, 1)), BatchRule::kGrows);
  EXPECT_EQ(law.serial, 0);
  EXPECT_NEAR(law.speed_up(8), 8 / 1.07, 0.1);
  EXPECT_EQ(law.bound(8), 8);
}

TEST(ScalingPoints, AreOfTheMiddleHalfOfAllRunsOfASize) {
  std::vector<ScalingSeries> runs = {{.ranks = 2, .steps = {{1}, {2}, {3}, {90}}},
                                     {.ranks = 2, .steps = {{2}, {2}, {2}, {2}}},
                                     {.ranks = 1, .steps = {{5}}}};
  const auto points = scaling_points(runs);
  ASSERT_EQ(points.size(), 2u);
  EXPECT_EQ(points[0].ranks, 1);
  EXPECT_EQ(points[0].step.compute, 5);
  EXPECT_EQ(points[1].step.compute, 2);
}

TEST(ResampledLaws, AreTheSameEachTime) {
  const auto runs = drawn_runs(kTruth, {1, 2}, 1, 20);
  const auto first = resampled_laws(runs, BatchRule::kFixed);
  const auto second = resampled_laws(runs, BatchRule::kFixed);
  ASSERT_EQ(first.size(), static_cast<size_t>(kLaws));
  EXPECT_EQ(first[7].seconds(3), second[7].seconds(3));
  EXPECT_NE(first[7].seconds(3), first[8].seconds(3));
}

}  // namespace
}  // namespace hanji::report
