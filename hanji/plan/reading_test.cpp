#include "hanji/plan/reading.h"

#include <gtest/gtest.h>

namespace hanji::plan {
namespace {

constexpr Reading kAny{kAuto, kAuto};

/// A step of 64 samples of 1 ms each: 64 ms of one thread.
ReadingFacts facts_of(double step_seconds, int cores, int threads) {
  return {.sample_seconds = 1e-3,
          .samples = 64,
          .step_seconds = step_seconds,
          .cores = cores,
          .threads = threads};
}

TEST(Reading, WorkersOnFreeCoresHideWhatTheyReadWhileTheStepComputes) {
  const ReadingFacts facts = facts_of(0.040, 4, 2);
  EXPECT_DOUBLE_EQ(reading_cost(facts, {0, 0}).stall_seconds, 0.064);
  EXPECT_DOUBLE_EQ(reading_cost(facts, {2, 1}).seconds(), 0);
  // One worker has read 40 samples when the step ends, and the rank helps with the other 24.
  EXPECT_DOUBLE_EQ(reading_cost(facts, {1, 1}).stall_seconds, 0.012);
}

TEST(Reading, WorkersOnCoresThatComputeSlowTheStepByWhatTheyTake) {
  // One core for both: the sum.
  const ReadingFacts one_core = facts_of(0.100, 1, 1);
  EXPECT_DOUBLE_EQ(reading_cost(one_core, {1, 1}).seconds(), 0.064);
  // Two cores, three threads: each runs two thirds of the time, so 64 ms of reading take 96, in which
  // 64 ms are computed.
  const ReadingFacts two_cores = facts_of(0.100, 2, 2);
  EXPECT_DOUBLE_EQ(reading_cost(two_cores, {1, 1}).slow_seconds, 0.032);
  EXPECT_DOUBLE_EQ(reading_cost(two_cores, {1, 1}).stall_seconds, 0);
}

TEST(Reading, ThreadsWithoutPrefetchShareTheStepOutToTheCores) {
  EXPECT_DOUBLE_EQ(reading_cost(facts_of(1, 2, 2), {1, 0}).stall_seconds, 0.032);
  EXPECT_DOUBLE_EQ(reading_cost(facts_of(1, 2, 2), {7, 0}).stall_seconds, 0.032) << "two cores";
}

TEST(Reading, IsLeftToTheRankWhereEveryCoreComputesAlone) {
  EXPECT_EQ(choose_reading(facts_of(0.100, 1, 1), kAny, 8), (Reading{0, 0}));
}

TEST(Reading, TakesNoThreadForSamplesThatCostNothing) {
  ReadingFacts facts = facts_of(0.100, 8, 1);
  facts.sample_seconds = 1e-6;
  EXPECT_EQ(choose_reading(facts, kAny, 8), (Reading{0, 0}));
}

TEST(Reading, TakesTheFewestThreadsThatHideIt) {
  EXPECT_EQ(choose_reading(facts_of(0.100, 16, 1), kAny, 8), (Reading{1, 1}));
  EXPECT_EQ(choose_reading(facts_of(0.022, 16, 1), kAny, 8), (Reading{3, 1}));
}

TEST(Reading, ReadsBeforeTheStepWhereAllCoresCompute) {
  // Threads beside those that compute would cost as much as they save.
  EXPECT_EQ(choose_reading(facts_of(0.100, 4, 4), kAny, 8), (Reading{3, 0}));
}

TEST(Reading, ReadsFurtherAheadWhereSamplesDiffer) {
  ReadingFacts facts = facts_of(0.065, 16, 1);
  facts.sample_deviation = 4e-3;
  // One thread: 64 ms and three times 4 ms * sqrt(64), 160 ms, are three steps of 65 ms.
  EXPECT_EQ(choose_reading(facts, kAny, 8), (Reading{1, 3}));
  EXPECT_EQ(choose_reading(facts, kAny, 2), (Reading{1, 2}));
}

TEST(Reading, StaysWithinTheMemoryForStepsAhead) {
  EXPECT_EQ(choose_reading(facts_of(0.100, 4, 1), kAny, 0), (Reading{3, 0}));
}

TEST(Reading, WithoutAMeasurementReadsAheadOnlyWithThreadsThatWereAsked) {
  ReadingFacts facts = facts_of(0.100, 4, 1);
  facts.sample_seconds = 0;
  EXPECT_EQ(choose_reading(facts, kAny, 8), (Reading{0, 0}));
  EXPECT_EQ(choose_reading(facts, {2, kAuto}, 8), (Reading{2, 1}));
}

TEST(Reading, KeepsWhatWasAsked) {
  const ReadingFacts facts = facts_of(0.100, 4, 1);
  EXPECT_EQ(choose_reading(facts, {2, kAuto}, 8), (Reading{2, 1}));
  EXPECT_EQ(choose_reading(facts, {kAuto, 5}, 8), (Reading{1, 5}));
  EXPECT_EQ(choose_reading(facts, {kAuto, 0}, 8), (Reading{3, 0}));
  EXPECT_EQ(choose_reading(facts, {6, 2}, 0), (Reading{6, 2}));
  EXPECT_EQ(choose_reading(facts, {0, kAuto}, 8), (Reading{0, 0}));
}

}  // namespace
}  // namespace hanji::plan
