#include "hanji/cost/fit.h"

#include <gmock/gmock.h>

#include <cmath>
#include <set>

#include "hanji/base/random.h"
#include "hanji/cost/nonnegative.h"
#include "hanji/cost/usage.h"
#include "hanji/schedule/all_reduce.h"

namespace hanji::cost {
namespace {

// A machine that is known: caches that are fast up to 4 MiB, memory beyond.
FittedCosts imagined(int ranks) {
  FittedCosts costs;
  costs.ranks = ranks;
  costs.processors = 2;
  costs.call_seconds = 0.4e-6;
  costs.sync_seconds = 0.3e-6;
  costs.step_seconds = 0.05e-6;
  costs.wake_seconds = 0.2e-6;
  for (size_t i = 0; i < kLevelBytes.size(); ++i) {
    const double slower = kLevelBytes[i] > (4 << 20) ? 4 : 1;
    costs.levels[i].read = 2e-11 * slower;
    costs.levels[i].write = 3e-11 * slower;
    costs.levels[i].update = 4e-11 * slower;
    costs.levels[i].pass = 5e-11;
    costs.levels[i].claim = 3e-11;
    costs.levels[i].others = 1e-11 * (slower - 1);
    costs.levels[i].combine = {0.5e-11, 1e-11, 4e-11, 3e-11, 2e-11};
  }
  return costs;
}

std::vector<TimedCall> timed_on(const FittedCosts& machine, double noise) {
  std::vector<TimedCall> calls = design_calls(machine.ranks);
  const auto truth = unknowns_of(machine);
  uint64_t index = 0;
  for (TimedCall& call : calls) {
    const auto draw = base::Philox::draw(7, 0, ++index);
    const double wobble = 1 + noise * (2 * base::uniform(draw[0]) - 1);
    call.seconds = wobble * weighted_sum(usage_of(*call.list, call.dtype, machine), truth);
  }
  return calls;
}

double price_on(const FittedCosts& machine, const schedule::StepList& list) {
  return weighted_sum(usage_of(list, DType::kFloat32, machine), unknowns_of(machine));
}

TEST(FitCosts, RecoversTheMachineThatMadeTheTimes) {
  const FittedCosts machine = imagined(2);
  const auto fitted = fit_costs(timed_on(machine, 0), 2, 2);
  ASSERT_TRUE(fitted.ok()) << fitted.status().message();
  EXPECT_LT(fitted->median_error, 0.02);
  EXPECT_LT(fitted->worst_error, 0.1);
  EXPECT_NEAR(fitted->call_seconds + fitted->sync_seconds, 0.7e-6, 0.1e-6);
  // Between the sizes of the design, and of a list that it has not.
  for (const int64_t count : {1000, 50'000, 300'000, 3'000'000}) {
    for (const auto& list :
         {schedule::all_reduce_direct(2, count),
          schedule::all_reduce_staged(2, count, std::min<int64_t>(count / 3 + 1, 100'000))}) {
      EXPECT_NEAR(price_on(*fitted, list) / price_on(machine, list), 1, 0.08)
          << list.algorithm << " " << count;
    }
  }
  // Memory beyond the caches is seen to be slow.
  const auto per_element = [&](int64_t count) {
    return price_on(*fitted, schedule::all_reduce_direct(2, count)) / static_cast<double>(count);
  };
  EXPECT_GT(per_element(8 << 20), 2 * per_element(100'000));
}

TEST(FitCosts, NoiseMovesPredictionsLessThanItself) {
  for (const int ranks : {2, 4}) {
    const FittedCosts machine = imagined(ranks);
    const auto fitted = fit_costs(timed_on(machine, 0.1), ranks, 2).or_throw();
    std::vector<double> errors;
    for (const TimedCall& call : timed_on(machine, 0)) {
      errors.push_back(std::abs(error_of_terms(call, fitted)));
    }
    std::ranges::sort(errors);
    EXPECT_LT(errors[errors.size() / 2], 0.05);
    EXPECT_LT(errors.back(), 0.35);
  }
}

TEST(FitCosts, CorrectsWhatTheTermsDoNotExplain) {
  std::vector<TimedCall> calls = timed_on(imagined(2), 0);
  const auto is_odd = [](const TimedCall& call) {
    return call.list->routine == schedule::Routine::kAllGather && call.list->algorithm == "direct";
  };
  for (TimedCall& call : calls) {
    if (is_odd(call)) call.seconds *= 2;  // for a reason that no term knows
  }
  const auto fitted = fit_costs(calls, 2, 2).or_throw();
  for (const TimedCall& call : calls) {
    EXPECT_LT(std::abs(error_of(call, fitted)), 0.01);
    if (is_odd(call)) {
      EXPECT_LT(error_of_terms(call, fitted), -0.1);
    }
  }
}

TEST(FitCosts, MoreBytesNeverCostLess) {
  const auto fitted = fit_costs(timed_on(imagined(2), 0.1), 2, 2).or_throw();
  for (const double value : unknowns_of(fitted)) EXPECT_GE(value, 0);
}

TEST(FitCosts, RefusesCallsWithoutATime) {
  EXPECT_THAT(fit_costs(design_calls(2), 2, 2).status().message(), testing::HasSubstr("no time"));
  EXPECT_FALSE(fit_costs({}, 2, 2).ok());
}

TEST(DesignCalls, StayBelowAWorkingSet) {
  for (const TimedCall& call : design_calls(2, 1 << 20)) {
    EXPECT_LE(tensor_bytes(*call.list, call.dtype), 1 << 20);
  }
}

TEST(DesignCalls, ReachEveryLevelAlgorithmAndType) {
  for (const int ranks : {1, 2, 4}) {
    std::set<std::string> algorithms;
    std::set<DType> types;
    std::vector<double> used(kUnknowns);
    for (const TimedCall& call : design_calls(ranks)) {
      algorithms.insert(call.list->algorithm);
      types.insert(call.dtype);
      const auto usage = usage_of(*call.list, call.dtype, assumed_costs(ranks, 2));
      for (size_t i = 0; i < kUnknowns; ++i) used[i] += usage[i];
    }
    EXPECT_GE(algorithms.size(), 3u);
    EXPECT_EQ(types.size(), kFittedTypes.size());
    if (ranks == 1) continue;
    for (size_t level = 0; level < kLevelBytes.size(); ++level) {
      EXPECT_GT(used[kCommonUnknowns + level * kLevelUnknowns + 2], 0) << level;
    }
  }
}

}  // namespace
}  // namespace hanji::cost
