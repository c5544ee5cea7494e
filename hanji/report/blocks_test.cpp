#include "hanji/report/blocks.h"

#include <gmock/gmock.h>

#include <cmath>

#include "hanji/base/random.h"
#include "hanji/report/test_normal.h"

namespace hanji::report {
namespace {

using test_run::normal;

/// Steps of about 1 s with a spread of 1 %, each correlated with the one before by `rho`.
std::vector<double> made_steps(size_t count, double rho, uint64_t seed) {
  std::vector<double> steps;
  double state = normal(seed, 0);
  for (size_t i = 1; i <= count; ++i) {
    state = rho * state + std::sqrt(1 - rho * rho) * normal(seed, i);
    steps.push_back(1 + 0.01 * state);
  }
  return steps;
}

/// The share of equal pairs that are called different.
double false_alarms(size_t steps, double rho, int pairs) {
  int wrong = 0;
  for (int i = 0; i < pairs; ++i) {
    const auto before = made_steps(steps, rho, base::mix(steps, 2 * i));
    const auto after = made_steps(steps, rho, base::mix(steps, 2 * i + 1));
    wrong += median_change(before, after).differs();
  }
  return static_cast<double>(wrong) / pairs;
}

TEST(MedianChange, EqualPairsOfAnyCorrelationDifferAtMostAsOftenAsStated) {
  struct Case {
    double rho;
    size_t steps;
    int pairs;
  };
  const Case cases[] = {{0, 100, 400},   {0.3, 100, 400}, {0.6, 100, 400},
                        {0.6, 200, 200}, {0.9, 100, 100}, {0.9, 500, 100}};
  for (const auto& [rho, steps, pairs] : cases) {
    // Three deviations of the rate that so many pairs have by chance.
    const double chance = 3 * std::sqrt(kFalseAlarms * (1 - kFalseAlarms) / pairs);
    const double rate = false_alarms(steps, rho, pairs);
    EXPECT_LE(rate, kFalseAlarms + chance) << rho << " " << steps;
  }
}

TEST(MedianChange, FivePercentAreSeen) {
  for (const double rho : {0.0, 0.3, 0.6}) {
    int seen = 0;
    for (uint64_t i = 0; i < 50; ++i) {
      const auto before = made_steps(200, rho, 2 * i);
      auto after = made_steps(200, rho, 2 * i + 1);
      for (double& step : after) step *= 1.05;
      seen += median_change(before, after).differs();
    }
    EXPECT_GE(seen, 49) << rho;
  }
}

TEST(MedianChange, FewIndependentStepsTellNothing) {
  const auto few = median_change(made_steps(15, 0, 1), made_steps(400, 0, 2));
  EXPECT_FALSE(few.is_told());
  const auto correlated = median_change(made_steps(100, 0.9, 1), made_steps(100, 0.9, 2));
  EXPECT_FALSE(correlated.is_told());
  EXPECT_FALSE(correlated.differs());
  EXPECT_FALSE(median_change({}, {}).is_told());
}

TEST(MedianChange, IsTheSameEachTime) {
  const auto before = made_steps(100, 0.3, 1), after = made_steps(100, 0.3, 2);
  EXPECT_EQ(median_change(before, after).low, median_change(before, after).low);
}

TEST(MedianChange, MoreComparisonsWidenTheInterval) {
  const auto before = made_steps(100, 0, 1), after = made_steps(100, 0, 2);
  EXPECT_LT(median_change(before, after, 8).low, median_change(before, after, 1).low);
}

TEST(CorrelationTime, IsThatOfTheProcess) {
  // (1 + rho) / (1 - rho) of the steps; their ranks are a little less correlated. The estimate from 4,000 steps has a
  // deviation of some percent.
  EXPECT_NEAR(correlation_time(made_steps(4000, 0, 1)), 1, 0.3);
  EXPECT_NEAR(correlation_time(made_steps(4000, 0.6, 1)), 4, 0.8);
  EXPECT_NEAR(correlation_time(made_steps(4000, 0.9, 1)), 19, 5);
}

TEST(CorrelationTime, ADriftUnderNoiseIsSeenThoughNeighboursHardlyAgree) {
  auto steps = made_steps(1000, 0, 1);
  const auto drift = made_steps(1000, 0.98, 2);
  for (size_t i = 0; i < steps.size(); ++i) steps[i] += 0.5 * (drift[i] - 1);
  EXPECT_GT(correlation_time(steps), 8);  // neighbours alone: 0.2 gives 1.5
}

TEST(CorrelationTime, EqualStepsAreIndependent) {
  EXPECT_EQ(correlation_time(std::vector<double>(50, 0.25)), 1);
}

TEST(StudentQuantile, IsThatOfTables) {
  EXPECT_NEAR(student_quantile(0.975, 4), 2.776, 0.03);
  EXPECT_NEAR(student_quantile(0.99, 10), 2.764, 0.01);
  EXPECT_NEAR(student_quantile(0.975, 1e9), 1.960, 0.001);
}

TEST(DrawBlocks, TakesStepsThatFollowEachOther) {
  const auto indices = draw_blocks(100, 10, 7, 3);
  ASSERT_EQ(indices.size(), 100u);
  for (size_t i = 0; i < 100; ++i) {
    EXPECT_LT(indices[i], 100u);
    if (i % 10 == 0) continue;
    EXPECT_EQ(indices[i], indices[i - 1] + 1);
  }
  EXPECT_EQ(indices, draw_blocks(100, 10, 7, 3));
  EXPECT_NE(indices, draw_blocks(100, 10, 7, 4));
}

}  // namespace
}  // namespace hanji::report
