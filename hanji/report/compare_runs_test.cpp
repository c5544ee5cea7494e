#include "hanji/report/compare_runs.h"

#include <gmock/gmock.h>

#include "hanji/base/json.h"
#include "hanji/base/text.h"
#include "hanji/report/test_run.h"

namespace hanji::report {
namespace {

using test_run::make;
using test_run::Own;
using testing::HasSubstr;
using testing::Not;

RunRecords compared_run(uint64_t seed, double slower = 1, int64_t steps = 100, int ranks = 4) {
  RunRecords run =
      make({.ranks = ranks, .steps = steps, .seed = seed, .own = [=](int rank, int64_t) {
              return Own{.compute = rank == 2 ? 0.1 * slower : 0.1};
            }});
  run.folder = seed % 2 == 1 ? "/runs/A" : "/runs/B";
  return run;
}

const PartChange& part_of(const RunComparison& all, StepPart part) {
  return *std::ranges::find(all.parts, part, &PartChange::part);
}

TEST(CompareRuns, EqualRunsAreAlike) {
  const RunComparison all = compare_runs(compared_run(1), compared_run(2));
  EXPECT_TRUE(all.is_told);
  for (const PartChange& part : all.parts) EXPECT_EQ(outcome_of(part), "alike");
  EXPECT_THAT(all.sentence, HasSubstr("has not changed beyond the spread of steps"));
  EXPECT_TRUE(all.configuration.empty());
  EXPECT_THAT(comparison_text(all), HasSubstr("configured   alike"));
  EXPECT_THAT(comparison_text(all), HasSubstr("two runs also differ by their start"));
}

TEST(CompareRuns, ASlowerRankIsNamedWithWhatItsComputingAdds) {
  const RunComparison all = compare_runs(compared_run(1), compared_run(2, 1.2));
  EXPECT_EQ(outcome_of(part_of(all, StepPart::kStep)), "longer");
  EXPECT_EQ(outcome_of(part_of(all, StepPart::kCompute)), "longer");
  EXPECT_EQ(outcome_of(part_of(all, StepPart::kData)), "alike");
  EXPECT_THAT(all.sentence, HasSubstr("longer"));
  EXPECT_THAT(all.sentence, testing::ContainsRegex("compute .*most on rank 2"));
  const auto rank = std::ranges::find(all.details, StepPart::kCompute, &PartChange::part);
  ASSERT_NE(rank, all.details.end());
  EXPECT_EQ(rank->rank, 2);
  EXPECT_NEAR(rank->change.after - rank->change.before, 0.02, 0.002);
}

TEST(CompareRuns, AFasterRunIsShorter) {
  const RunComparison all = compare_runs(compared_run(1, 1.2), compared_run(2));
  EXPECT_EQ(outcome_of(all.parts.front()), "shorter");
  EXPECT_THAT(all.sentence, HasSubstr(" less (-"));
}

TEST(CompareRuns, AnAxisThatMovesLongerIsNamed) {
  RunRecords slow = compared_run(2);
  for (RankSteps& rank : slow.ranks) {
    for (StepAccount& one : rank.accounts) {
      *one.exposed_transfer += 0.02;
      *one.axes[0].exposed_transfer += 0.02;
      one.seconds += 0.02;
    }
  }
  const RunComparison all = compare_runs(compared_run(1), slow);
  EXPECT_THAT(all.sentence, testing::ContainsRegex("moving bytes .*most on the axis data"));
}

TEST(CompareRuns, FewStepsAreNotCompared) {
  const RunComparison all = compare_runs(compared_run(1, 1, 12), compared_run(2, 2));
  EXPECT_FALSE(all.is_told);
  EXPECT_THAT(all.sentence, HasSubstr("cannot be told, because 11 steps of A"));
  EXPECT_EQ(outcome_of(all.parts.front()), "not told");
  EXPECT_TRUE(all.details.empty());
  const RunComparison none = compare_runs(compared_run(1, 1, 1), compared_run(2));
  EXPECT_THAT(none.sentence, HasSubstr("A has no steps after the first"));
}

TEST(CompareRuns, PartsOfOneRunHaveOneStart) {
  RunRecords run = make({.ranks = 2, .steps = 200, .own = [](int, int64_t step) {
                           return Own{.data = step > 100 ? 0.02 : 1e-4};
                         }});
  const RunComparison all = compare_runs(only_steps(run, {1, 100}), only_steps(run, {101, 200}));
  EXPECT_EQ(all.before.last_step, 100);
  EXPECT_EQ(all.after.first_step, 101);
  EXPECT_EQ(outcome_of(part_of(all, StepPart::kData)), "longer");
  EXPECT_THAT(comparison_text(all), Not(HasSubstr("differ by their start")));
}

TEST(CompareRuns, WhatOneEngineDoesNotTellIsNotMeasured) {
  RunRecords run = compared_run(2);
  for (RankSteps& rank : run.ranks) {
    for (StepAccount& one : rank.accounts) one.skew.reset();
  }
  const RunComparison all = compare_runs(compared_run(1), run);
  EXPECT_EQ(outcome_of(part_of(all, StepPart::kCompute)), "not measured");
  EXPECT_EQ(outcome_of(part_of(all, StepPart::kSkew)), "not measured");
  EXPECT_EQ(outcome_of(part_of(all, StepPart::kStep)), "alike");
}

TEST(CompareRuns, RecordsOfSomeRanksAreSaidToBe) {
  RunRecords run = compared_run(2);
  run.ranks.pop_back();
  EXPECT_THAT(compare_runs(compared_run(1), run).after.description,
              HasSubstr("records of 3 of them"));
}

TEST(CompareRuns, TimeThatOthersTookIsSaid) {
  RunRecords run = compared_run(2);
  for (RankSteps& rank : run.ranks) {
    for (StepAccount& one : rank.accounts) one.cpu = 0.7 * one.seconds;
  }
  const std::string text = comparison_text(compare_runs(compared_run(1), run), 200);
  EXPECT_THAT(text, testing::ContainsRegex(
                        "other processes took [23][0-9] % of the time in which ranks of B"));
  EXPECT_THAT(text, Not(HasSubstr("ranks of A computed")));
}

TEST(CompareRuns, ChangedKeysAreListed) {
  RunRecords other = compared_run(2);
  other.plan.config.comm.bucket_bytes = 65536;
  other.plan.config.run.out = "elsewhere";
  other.plan.num_buckets = 7;
  const RunComparison all = compare_runs(compared_run(1), other);
  ASSERT_EQ(all.configuration.size(), 2u);
  EXPECT_EQ(all.configuration[0].key, "comm.bucket_bytes");
  EXPECT_EQ(all.configuration[1].after, "7");
}

TEST(CompareRuns, TextFitsFortyLinesOfEightyColumns) {
  RunRecords other = compared_run(2, 1.5, 100, 16);
  for (const plan::AxisKey& one : plan::kAxisKeys) other.plan.config.mesh.*one.degree = 3;
  other.plan.config.train.steps = 7;
  other.plan.config.train.split = std::vector<double>(16, 0.0625);
  for (RankSteps& rank : other.ranks) {
    for (StepAccount& one : rank.accounts) {
      one.cpu = 0;
      one.axes[0].exposed_transfer = 0.5;
      one.axes[0].axis = "fsdp";
      *one.exposed_transfer += 0.01;
      one.data += 0.01;
      one.seconds += 0.02;
    }
  }
  const std::string text = comparison_text(compare_runs(compared_run(1, 1, 100, 16), other));
  const auto lines = base::split(text, '\n');
  EXPECT_LE(lines.size(), 41u) << text;
  for (const std::string_view line : lines) EXPECT_LE(line.size(), 80u) << line;
}

TEST(CompareRuns, JsonHasTheSame) {
  const auto json =
      base::parse_json(comparison_json(compare_runs(compared_run(1), compared_run(2, 1.2))));
  ASSERT_TRUE(json.ok()) << json.status().to_string();
  EXPECT_EQ((*json)["format"], kComparisonFormat);
  EXPECT_EQ((*json)["parts"][0]["outcome"], "longer");
  EXPECT_GT((*json)["parts"][0]["low"], 0.0);
  EXPECT_EQ((*json)["details"][0]["rank"], 2);
}

}  // namespace
}  // namespace hanji::report
