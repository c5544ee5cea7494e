#include "hanji/report/scaling.h"

#include <gmock/gmock.h>

#include <cmath>

#include "hanji/base/json.h"
#include "hanji/base/text.h"
#include "hanji/report/test_normal.h"
#include "hanji/report/test_run.h"

namespace hanji::report {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr ScalingLaw kJob{.serial = 0.005, .shared = 0.095, .latency = 4e-4};

/// A run of one job whose ranks compute as `compute` says; a noise of 1 % in each step.
RunRecords scaled(int ranks, const std::function<double(int)>& compute, int64_t steps = 60) {
  RunRecords run = test_run::make(
      {.ranks = ranks, .steps = steps, .noise = 0, .own = [&](int, int64_t step) {
         const double noise = 1 + 0.01 * test_run::normal(ranks, step);
         return test_run::Own{
             .compute = compute(ranks) * noise, .data = 0, .transfer = kJob.transfer(ranks)};
       }});
  run.folder = "/runs/" + std::to_string(ranks);
  run.plan.config.train.global_batch = 48;
  run.plan.config.train.micro_batch = 8;
  return run;
}

std::vector<RunRecords> scaled(
    const std::vector<int>& sizes,
    const std::function<double(int)>& compute = [](int p) { return kJob.compute(p); }) {
  std::vector<RunRecords> runs;
  for (const int ranks : sizes) runs.push_back(scaled(ranks, compute));
  return runs;
}

std::string refusal(const std::vector<RunRecords>& runs) {
  const auto study = study_scaling(runs);
  EXPECT_EQ(study.status().code(), Code::kInvalidArgument);
  return study.status().message();
}

TEST(Scaling, SaysWhatTwiceTheRanksWouldGive) {
  const auto study = study_scaling(scaled({1, 2, 4}));
  ASSERT_TRUE(study.ok()) << study.status().to_string();
  EXPECT_EQ(study->forecast().ranks, 8);
  EXPECT_NEAR(study->forecast().speed_up, kJob.speed_up(8), 0.1);
  EXPECT_LE(study->forecast().interval.low, kJob.speed_up(8));
  EXPECT_GE(study->forecast().interval.high, kJob.speed_up(8));
  EXPECT_THAT(study->sentence, HasSubstr("8 ranks would be 5.0"));
  EXPECT_NEAR(study->sizes[2].speed_up, kJob.speed_up(4), 0.1);
  EXPECT_GT(study->forecast().bound, study->forecast().speed_up);
}

TEST(Scaling, TwoSizesAreSaidToCheckNothing) {
  const auto study = study_scaling(scaled({1, 2}));
  ASSERT_TRUE(study.ok());
  EXPECT_EQ(study->forecast().ranks, 4);
  EXPECT_THAT(study->sentence, HasSubstr("a third would check it"));
}

TEST(Scaling, RunsOfOneSizeCountTogether) {
  auto runs = scaled({1, 2, 2, 4});
  const auto study = study_scaling(runs);
  ASSERT_TRUE(study.ok());
  ASSERT_EQ(study->sizes.size(), 3u);
  EXPECT_EQ(study->sizes[1].runs, 2);
  EXPECT_EQ(study->sizes[1].steps, 118);
}

TEST(Scaling, CoresThatShareBandwidthDoNotFollowTheLaw) {
  const auto study =
      study_scaling(scaled({1, 2, 4}, [](int p) { return std::max(0.1 / p, 0.05); }));
  ASSERT_TRUE(study.ok());
  EXPECT_THAT(study->sentence, HasSubstr("no forecast, because the law does not hold"));
  EXPECT_THAT(study->sentence, HasSubstr("share memory bandwidth"));
  EXPECT_THAT(scaling_text(*study), Not(HasSubstr("law, 8")));
  EXPECT_THAT(scaling_text(*study), Not(HasSubstr("Amdahl:")));
}

TEST(Scaling, RanksThatOutnumberCoresAreNotFitted) {
  auto runs = scaled({1, 2, 4});
  const auto crowd = [](RunRecords& run) {
    for (auto& cpus : run.plan.cpus) cpus.clear();
    for (RankSteps& rank : run.ranks) {
      for (StepAccount& one : rank.accounts) one.cpu = 0.5 * one.seconds;
    }
  };
  crowd(runs[2]);
  const auto study = study_scaling(runs);
  ASSERT_TRUE(study.ok());
  EXPECT_FALSE(study->sizes[2].is_fitted);
  EXPECT_EQ(study->forecast().ranks, 4);
  EXPECT_THAT(scaling_text(*study), HasSubstr("4 ranks outnumber the cores and are not"));
  crowd(runs[1]);
  const auto none = study_scaling(runs);
  ASSERT_TRUE(none.ok());
  EXPECT_THAT(none->sentence, HasSubstr("they outnumber the cores"));
}

TEST(Scaling, TimeThatOthersTookIsNoMeasure) {
  auto runs = scaled({1, 2, 4});
  for (StepAccount& one : runs[0].ranks[0].accounts) one.cpu = 0.6 * one.seconds;
  const auto study = study_scaling(runs);
  ASSERT_TRUE(study.ok());
  EXPECT_THAT(study->sentence,
              HasSubstr("other processes took 40 % of the time in which 1 rank computed"));
}

TEST(Scaling, ABatchThatGrowsIsWeakScaling) {
  auto runs = scaled({1, 2, 4}, [](int) { return 0.1; });
  for (RunRecords& run : runs) run.plan.config.train.global_batch = 8 * run.plan.ranks;
  const auto study = study_scaling(runs);
  ASSERT_TRUE(study.ok()) << study.status().to_string();
  EXPECT_EQ(study->batch, BatchRule::kGrows);
  EXPECT_NEAR(study->sizes[2].speed_up, 4 * 0.1 / 0.1012, 0.05);
  EXPECT_THAT(scaling_text(*study, 200), HasSubstr("weak, train.global_batch grows"));
  EXPECT_THAT(scaling_text(*study), HasSubstr("Gustafson"));
}

TEST(Scaling, AllMistakesAreRefusedAtOnce) {
  auto runs = scaled({2, 2});
  runs[1].plan.config.model.layers = 99;
  runs[1].plan.config.train.global_batch = 7;
  runs[1].plan.threads = 2;
  for (RunRecords& run : runs) run.ranks[0].accounts.resize(5);
  const std::string text = refusal(runs);
  EXPECT_THAT(text, HasSubstr("runs on 2 ranks are no scaling"));
  EXPECT_THAT(text, HasSubstr("model.layers is 99"));
  EXPECT_THAT(text, HasSubstr("compute.threads is 2, and 1 in /runs/2"));
  EXPECT_THAT(text, HasSubstr("runs on 2 ranks have 8 steps after their first"));
  EXPECT_THAT(text, HasSubstr("neither the same in all runs nor grows"));
  EXPECT_EQ(std::ranges::count(text, '\n'), 4);
}

TEST(Scaling, RecordsOfSomeRanksAreNotEnough) {
  auto runs = scaled({1, 4});
  runs[1].ranks.pop_back();
  EXPECT_THAT(refusal(runs), HasSubstr("/runs/4: records of 3 of 4 ranks lie here"));
}

TEST(Scaling, WhereThePartsAreUnknownTheStepIsFitted) {
  auto runs = scaled({1, 2, 4});
  for (RunRecords& run : runs) {
    for (RankSteps& rank : run.ranks) {
      for (StepAccount& one : rank.accounts) one.skew = one.exposed_transfer = std::nullopt;
    }
  }
  const auto study = study_scaling(runs);
  ASSERT_TRUE(study.ok());
  EXPECT_FALSE(study->has_parts);
  EXPECT_NEAR(study->forecast().speed_up, kJob.speed_up(8), 0.6);
  EXPECT_THAT(scaling_text(*study, 200), HasSubstr("the step is fitted as a whole"));
}

TEST(Scaling, TextFitsFortyLinesOfEightyColumns) {
  const auto study = study_scaling(scaled({1, 2, 3, 4, 6, 8, 12, 16}));
  ASSERT_TRUE(study.ok()) << study.status().to_string();
  const std::string text = scaling_text(*study);
  const auto lines = base::split(text, '\n');
  EXPECT_LE(lines.size(), 41u) << text;
  for (const std::string_view line : lines) EXPECT_LE(line.size(), 80u) << line;
  EXPECT_THAT(text, HasSubstr("A at most without communication"));
}

TEST(Scaling, SvgAndJsonHaveTheSame) {
  const auto study = study_scaling(scaled({1, 2, 4}));
  ASSERT_TRUE(study.ok());
  const std::string svg = scaling_svg(*study);
  EXPECT_TRUE(svg.starts_with("<svg"));
  EXPECT_THAT(svg, HasSubstr("<title>4 ranks: "));
  EXPECT_EQ(svg, scaling_svg(*study_scaling(scaled({1, 2, 4}))));
  const auto json = base::parse_json(scaling_json(*study));
  ASSERT_TRUE(json.ok()) << json.status().to_string();
  EXPECT_EQ((*json)["curve"].back()["ranks"], 8);
  EXPECT_EQ((*json)["sizes"][2]["ranks"], 4);
  EXPECT_EQ((*json)["batch"], "fixed");
}

}  // namespace
}  // namespace hanji::report
