#include "hanji/report/verdict.h"

#include <gmock/gmock.h>

#include "hanji/report/test_run.h"

namespace hanji::report {
namespace {

using test_run::MadeRun;
using test_run::make;
using test_run::Own;
using testing::HasSubstr;

TEST(Verdict, PartsAddUpToTheStep) {
  for (const StepParts& one : mean_parts(make({}))) {
    EXPECT_NEAR(one.compute + one.data + one.exposed_transfer + one.skew, one.seconds,
                1e-12 * one.seconds);
  }
}

TEST(Verdict, ACleanRunNamesNoRank) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    const Verdict verdict =
        judge_run(make({.ranks = 2 + static_cast<int>(seed % 7), .seed = seed}));
    EXPECT_EQ(verdict.rank, -1) << seed << ": " << verdict.sentence;
    EXPECT_TRUE(verdict.cause == Cause::kCompute || verdict.cause == Cause::kNothing) << seed;
  }
}

/// Slowness of 5, 10 and 20 percent, all above five times the noise of a mean.
TEST(Verdict, ASlowRankIsNamedWithTheCallAndWhatMendingItSaves) {
  for (const double more : {1.05, 1.1, 1.2}) {
    for (uint64_t seed = 0; seed < 40; ++seed) {
      const int slow = static_cast<int>(seed % 4);
      const Verdict verdict =
          judge_run(make({.seed = seed, .own = [&](int rank, int64_t) {
                            return Own{.compute = rank == slow ? 0.1 * more : 0.1};
                          }}));
      ASSERT_EQ(verdict.cause, Cause::kSlowRank) << more << " " << seed << verdict.sentence;
      EXPECT_EQ(verdict.rank, slow);
      EXPECT_EQ(verdict.where, "all_reduce");
      // What it is behind the next one, whose noise of 1 % makes it later than the mean by 0.85 sigma of three.
      const double truth = 0.1 * (more - 1) - 0.85 * 0.001;
      EXPECT_NEAR(verdict.saving_seconds, truth, 0.2 * truth + 3 * 0.0015 / std::sqrt(59));
    }
  }
}

TEST(Verdict, ARankThatWaitsForSamplesIsNamed) {
  const Verdict verdict = judge_run(
      make({.own = [](int rank, int64_t) { return Own{.data = rank == 2 ? 0.03 : 1e-4}; }}));
  EXPECT_EQ(verdict.cause, Cause::kData) << verdict.sentence;
  EXPECT_EQ(verdict.rank, 2);
  EXPECT_NEAR(verdict.saving_seconds, 0.03, 1e-3);
  EXPECT_THAT(verdict.sentence, HasSubstr("set data.workers"));
}

TEST(Verdict, BytesThatMoveWhileNothingIsComputedAreNamedWithTheirAxis) {
  const Verdict verdict =
      judge_run(make({.own = [](int, int64_t) { return Own{.transfer = 0.04}; }}));
  EXPECT_EQ(verdict.cause, Cause::kCommunication) << verdict.sentence;
  EXPECT_EQ(verdict.where, "data");
  EXPECT_NEAR(verdict.saving_seconds, 0.04, 1e-3);
}

TEST(Verdict, ARankThatOthersTookTheCpuFromIsNotCalledSlow) {
  const Verdict verdict = judge_run(make({.own = [](int rank, int64_t) {
    return rank == 1 ? Own{.compute = 0.15, .cpu = 0.1} : Own{};
  }}));
  EXPECT_EQ(verdict.cause, Cause::kStolenTime) << verdict.sentence;
  EXPECT_EQ(verdict.rank, 1);
  EXPECT_THAT(verdict.sentence, HasSubstr("more ranks than cores"));
}

TEST(Verdict, TwoCausesOfOneSizeAreBothSaid) {
  const Verdict verdict = judge_run(make({.own = [](int rank, int64_t) {
    return Own{.compute = rank == 0 ? 0.12 : 0.1, .transfer = 0.015};
  }}));
  EXPECT_EQ(verdict.cause, Cause::kNothing) << verdict.sentence;
  EXPECT_THAT(verdict.sentence, HasSubstr("nothing stands out"));
}

TEST(Verdict, WhatWasNotRecordedIsNotMeasured) {
  const RunRecords whole =
      make({.own = [](int rank, int64_t) { return Own{.compute = rank == 1 ? 0.2 : 0.1}; }});
  ASSERT_EQ(judge_run(whole).cause, Cause::kSlowRank);
  const auto is_not_measured = [&](const std::function<void(RunRecords&)>& change,
                                   const char* why) {
    RunRecords run = whole;
    change(run);
    const Verdict verdict = judge_run(run);
    EXPECT_EQ(verdict.cause, Cause::kNotMeasured) << verdict.sentence;
    EXPECT_THAT(verdict.sentence, HasSubstr(why));
  };
  is_not_measured([](RunRecords& run) { run.ranks.clear(); }, "has no records of steps");
  is_not_measured([](RunRecords& run) { run.ranks.pop_back(); }, "records of 3 of 4 ranks");
  is_not_measured([](RunRecords& run) { run.ranks[2].accounts[9].skew.reset(); },
                  "does not tell moving bytes from waiting");
  is_not_measured([](RunRecords& run) { run.ranks[0].accounts.pop_back(); }, "different steps");
  is_not_measured(
      [](RunRecords& run) {
        for (RankSteps& rank : run.ranks) rank.accounts.resize(kMinSteps);
      },
      "19 steps after the first");
}

}  // namespace
}  // namespace hanji::report
