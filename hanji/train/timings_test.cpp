#include "hanji/train/timings.h"

#include <gtest/gtest.h>

namespace hanji::train {
namespace {

TEST(Timings, LeaveTheFirstStepOut) {
  const CallSeconds calls{.transfer = .75, .exposed_transfer = .5, .skew = .125};
  std::vector<StepSeconds> steps(12, {.step = 2, .data = .25, .calls = calls});
  steps.front().step = 100;
  steps.back().step = 9;
  const Timings timings = timings_of(steps);
  EXPECT_EQ(timings.step_median, 2);
  EXPECT_EQ(timings.compute, 2 - .25 - .5 - .125) << "hidden transfer costs the step nothing";
  EXPECT_EQ(timings.calls, calls);
}

// The first step of a run waits for the first pages of its file.
TEST(Timings, SecondsOfASampleAreThoseOfTheMedianStepThatHasReadSome) {
  std::vector<StepSeconds> steps(9, {.step = 2, .reading = {2, .5}});
  steps.front().reading.seconds = 100;
  steps.back().reading = {};
  EXPECT_EQ(timings_of(steps).sample, .25);
  EXPECT_EQ(timings_of({{.step = 3}}).sample, 0);
}

TEST(Timings, OneStepIsItsOwnMedian) { EXPECT_EQ(timings_of({{.step = 3}}).step_median, 3); }

TEST(Timings, StepsOfAnOlderLogCountWhereTheyTell) {
  const CallSeconds calls{.transfer = .5, .exposed_transfer = .5, .skew = .25};
  std::vector<StepSeconds> steps(7, {.step = 8, .data = 1});
  steps.insert(steps.end(), 3, {.step = 4, .data = 1, .calls = calls});
  const Timings timings = timings_of(steps);
  EXPECT_EQ(timings.step_median, 8);
  EXPECT_EQ(timings.calls, calls);
  EXPECT_EQ(timings.compute, 4 - 1 - .5 - .25);
}

TEST(Timings, WhereNoStepTellsThemTransferAndSkewAreUnknown) {
  const Timings timings = timings_of(std::vector<StepSeconds>(5, {.step = 4, .data = 1}));
  EXPECT_FALSE(timings.calls.has_value());
  EXPECT_EQ(timings.compute, 3);
}

}  // namespace
}  // namespace hanji::train
