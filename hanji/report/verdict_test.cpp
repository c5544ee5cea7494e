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
      EXPECT_NEAR(*verdict.saving_seconds, truth, 0.2 * truth + 3 * 0.0015 / std::sqrt(59));
    }
  }
}

TEST(Verdict, ARankThatWaitsForSamplesIsNamed) {
  const Verdict verdict = judge_run(
      make({.own = [](int rank, int64_t) { return Own{.data = rank == 2 ? 0.03 : 1e-4}; }}));
  EXPECT_EQ(verdict.cause, Cause::kData) << verdict.sentence;
  EXPECT_EQ(verdict.rank, 2);
  // Without it the others are waited for: the last of three is 0.85 sigma behind the mean.
  EXPECT_NEAR(*verdict.saving_seconds, 0.03 - 0.85e-3, 5 * 1e-3 / std::sqrt(59));
  EXPECT_THAT(verdict.sentence, HasSubstr("set data.workers"));
}

TEST(Verdict, BytesThatMoveWhileNothingIsComputedAreNamedWithTheirAxis) {
  const Verdict verdict =
      judge_run(make({.own = [](int, int64_t) { return Own{.transfer = 0.04}; }}));
  EXPECT_EQ(verdict.cause, Cause::kCommunication) << verdict.sentence;
  EXPECT_EQ(verdict.where, "data");
  EXPECT_NEAR(*verdict.saving_seconds, 0.04, 1e-3);
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

TEST(Verdict, ARankWithMoreSamplesIsNoSlowRank) {
  // 33 samples of two ranks: 17 and 16.
  const MadeRun made{.ranks = 2, .noise = 0.002, .batch = 33};
  const Verdict verdict = judge_run(make(made));
  EXPECT_EQ(verdict.cause, Cause::kUnevenShares) << verdict.sentence;
  EXPECT_THAT(verdict.sentence, HasSubstr("17 samples of a step where others have 16"));
  EXPECT_NEAR(*verdict.saving_seconds, 0.1 * (17 / 16.5 - 1), 0.2 * 0.003);
}

TEST(Verdict, AStageWithMoreLayersIsNamed) {
  const Verdict verdict = judge_run(make({.ranks = 1, .noise = 0.002, .pp = 2, .cut = {7}}));
  EXPECT_EQ(verdict.cause, Cause::kUnevenStages) << verdict.sentence;
  EXPECT_EQ(verdict.rank, 0);
  EXPECT_THAT(verdict.sentence, HasSubstr("pipeline.cut"));
  EXPECT_THAT(verdict.sentence, HasSubstr("beside it, the pipeline is filled"));
}

TEST(Verdict, APipelineOfEqualStagesHasItsBubble) {
  const Verdict verdict = judge_run(make({.ranks = 1, .noise = 0.002, .pp = 2}));
  EXPECT_EQ(verdict.cause, Cause::kBubble) << verdict.sentence;
  EXPECT_EQ(verdict.rank, -1);
  // 1F1B of p stages and m micro-batches: (p - 1) / m of the work.
  EXPECT_NEAR(*verdict.saving_seconds, 0.1 / 8, 0.1 * 0.1 / 8);
}

TEST(Verdict, ASlowRankOfAPipelineIsToldByItsPeerOfTheSameStage) {
  const Verdict verdict = judge_run(
      make({.ranks = 2,
            .noise = 0.002,
            .own = [](int rank, int64_t) { return Own{.compute = rank == 1 ? 0.11 : 0.1}; },
            .pp = 2}));
  EXPECT_EQ(verdict.cause, Cause::kSlowRank) << verdict.sentence;
  EXPECT_EQ(verdict.rank, 1);
}

TEST(Verdict, SeveralSlowRanksAreNamedTogether) {
  const Verdict verdict =
      judge_run(make({.ranks = 8, .own = [](int rank, int64_t) {
                        return Own{.compute = rank == 2 || rank == 5 ? 0.12 : 0.1};
                      }}));
  EXPECT_EQ(verdict.cause, Cause::kSlowRank) << verdict.sentence;
  EXPECT_THAT(verdict.causes[0].ranks, testing::UnorderedElementsAre(2, 5));
  EXPECT_GT(*verdict.saving_seconds, 0.015) << "mending one alone would save nothing";
}

/// A run whose ranks all wait for samples.
RunRecords waiting_for_samples(double reading, std::optional<double> fetching) {
  RunRecords run = make({.own = [](int, int64_t) { return Own{.data = 0.03}; }});
  run.plan.times.sample_parts = {{"read", 1e-4}, {"decode", 3e-3}, {"center_crop", 1e-3}};
  for (RankSteps& rank : run.ranks) {
    for (StepAccount& one : rank.accounts) {
      one.samples = 16;
      one.reading = reading;
      one.fetching = fetching;
    }
  }
  return run;
}

TEST(Verdict, TheStageOfLoadingIsNamedThatTakesMostOfASample) {
  EXPECT_EQ(judge_run(waiting_for_samples(0.05, 0.04)).where, "read");
  const Verdict slow_decoder = judge_run(waiting_for_samples(0.05, 0.01));
  EXPECT_EQ(slow_decoder.where, "decode");
  EXPECT_THAT(slow_decoder.sentence, HasSubstr("60 % of whose making is decode"));
  EXPECT_EQ(judge_run(waiting_for_samples(0.05, std::nullopt)).where, "") << "nobody told";
}

TEST(Verdict, BytesInSmallCallsAreBoundByLatency) {
  const auto sentence_of = [](int64_t calls, int64_t bytes) {
    RunRecords run = make({.own = [](int, int64_t) { return Own{.transfer = 0.04}; }});
    for (RankSteps& rank : run.ranks) {
      for (StepAccount& one : rank.accounts) {
        one.axes[0].calls = calls;
        one.axes[0].bytes = bytes;
      }
    }
    return judge_run(run).sentence;
  };
  EXPECT_THAT(sentence_of(1000, 1000 * 256), HasSubstr("latency bounds"));
  EXPECT_THAT(sentence_of(1000, 1000 * 256), HasSubstr("comm.bucket_bytes"));
  EXPECT_THAT(sentence_of(2, int64_t{64} << 20), HasSubstr("bandwidth bounds"));
}

TEST(Verdict, PagesFromADiskAreMemoryAndNotStolenTime) {
  RunRecords run = make({.own = [](int rank, int64_t) {
    return rank == 1 ? Own{.compute = 0.15, .cpu = 0.1} : Own{};
  }});
  for (StepAccount& one : run.ranks[1].accounts) one.major_faults = 400;
  const Verdict verdict = judge_run(run);
  EXPECT_EQ(verdict.cause, Cause::kMemory) << verdict.sentence;
  EXPECT_EQ(verdict.where, "paging");
  EXPECT_EQ(verdict.rank, 1);
}

TEST(Verdict, ForwardsThatAreComputedTwiceAreMemory) {
  const Verdict verdict = judge_run(
      make({.change = [](plan::PlanInputs& inputs) { inputs.config.compute.recompute = true; }}));
  EXPECT_EQ(verdict.cause, Cause::kMemory) << verdict.sentence;
  EXPECT_EQ(verdict.where, "recompute");
  EXPECT_NEAR(*verdict.saving_seconds, 0.1 / 3, 0.002);
}

/// Nobody has run a step with larger ones: no number is made up for it.
TEST(Verdict, MicroBatchesThatMemoryHasCutAreNamedWithoutASaving) {
  RunRecords run = make({});
  run.plan.micro_batch = 1;
  run.plan.micro_batch_wanted = 16;
  const Verdict verdict = judge_run(run);
  EXPECT_EQ(verdict.cause, Cause::kMemory) << verdict.sentence;
  EXPECT_EQ(verdict.where, "micro_batch");
  EXPECT_FALSE(verdict.saving_seconds);
  EXPECT_THAT(verdict.sentence, HasSubstr("was not measured"));
  run.plan.kernels.gemm_flops_per_second = 1;  // products that are as fast as they can be
  EXPECT_EQ(judge_run(run).cause, Cause::kCompute);
}

/// Whatever names a cause is taken out: nothing is named in its stead.
TEST(Verdict, WithoutTheWaitsNoRoutineIsNamed) {
  RunRecords run =
      make({.own = [](int rank, int64_t) { return Own{.compute = rank == 1 ? 0.12 : 0.1}; }});
  for (RankSteps& rank : run.ranks) {
    for (StepAccount& one : rank.accounts) one.waits.clear();
  }
  const Verdict verdict = judge_run(run);
  EXPECT_EQ(verdict.cause, Cause::kSlowRank);
  EXPECT_EQ(verdict.where, "");
  EXPECT_THAT(verdict.sentence, testing::Not(HasSubstr("wait for it in")));
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
  is_not_measured(
      [](RunRecords& run) {
        for (StepAccount& one : run.ranks[0].accounts) one.step += 1000;
      },
      "no step is in the records of all ranks");
  is_not_measured(
      [](RunRecords& run) {
        for (RankSteps& rank : run.ranks) rank.accounts.resize(kMinSteps);
      },
      "19 steps after the first");
}

}  // namespace
}  // namespace hanji::report
