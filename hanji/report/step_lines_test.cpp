#include "hanji/report/step_lines.h"

#include <gmock/gmock.h>

#include "hanji/report/test_run.h"

namespace hanji::report {
namespace {

using test_run::make;
using test_run::Own;
using testing::HasSubstr;

TEST(StepLines, AreThoseOfAllRanksWithoutTheFirst) {
  RunRecords run = make({.ranks = 3, .steps = 20});
  EXPECT_EQ(step_lines(run).size(), 19u);
  run.ranks[2].accounts.pop_back();  // a rank that is a step behind
  run.ranks[1].accounts.erase(run.ranks[1].accounts.begin() + 4);
  const auto lines = step_lines(run);
  ASSERT_EQ(lines.size(), 17u);
  EXPECT_EQ(lines.front().step, 2);
  EXPECT_EQ(lines.back().step, 19);
  EXPECT_TRUE(step_lines(RunRecords{}).empty());
}

TEST(StepLines, PartsAddUpToTheStep) {
  const RunRecords run = make({.ranks = 2, .steps = 10});
  const auto lines = step_lines(run);
  const Series step = series_of(lines, StepPart::kStep);
  Series sum(step.size());
  for (const StepPart part :
       {StepPart::kCompute, StepPart::kData, StepPart::kTransfer, StepPart::kSkew}) {
    const Series one = series_of(lines, part);
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += one[i];
  }
  for (size_t i = 0; i < sum.size(); ++i) EXPECT_NEAR(sum[i], step[i], 1e-12);
  EXPECT_EQ(axis_series(lines, StepPart::kTransfer, "data"), series_of(lines, StepPart::kTransfer));
}

TEST(StepLines, WhatAnEngineDoesNotTellHasNoSeries) {
  RunRecords run = make({.ranks = 2, .steps = 10});
  run.ranks[1].accounts[5].skew.reset();
  const auto lines = step_lines(run);
  EXPECT_TRUE(series_of(lines, StepPart::kSkew).empty());
  EXPECT_TRUE(series_of(lines, StepPart::kCompute).empty());
  EXPECT_EQ(series_of(lines, StepPart::kStep).size(), 9u);
  EXPECT_EQ(series_of(lines, StepPart::kSkew, 0).size(), 9u) << "rank 0 tells";
}

TEST(StepLines, AccountsOfSeveralStepsAreDivided) {
  RunRecords run = make({.ranks = 1, .steps = 3});
  StepAccount& last = run.ranks[0].accounts[2];
  last.step = 4;
  last.steps = 2;
  last.seconds = 0.4;
  EXPECT_DOUBLE_EQ(series_of(step_lines(run), StepPart::kStep).back(), 0.2);
}

TEST(StepRange, IsReadAndKeepsItsStepsOnly) {
  const auto range = parse_steps("5-8");
  ASSERT_TRUE(range.ok());
  const RunRecords some = only_steps(make({.ranks = 2, .steps = 20}), *range);
  EXPECT_EQ(some.ranks[1].accounts.size(), 4u);
  EXPECT_EQ(some.ranks[1].accounts.front().step, 5);
  EXPECT_EQ(parse_steps("-8")->first, 1);
  EXPECT_GT(parse_steps("8-")->last, 1'000'000);
  for (const char* wrong : {"", "-", "8", "8-5", "0-5", "a-b", "5-8x", "1-2-3"}) {
    const auto status = parse_steps(wrong).status();
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << wrong;
    EXPECT_THAT(status.message(), HasSubstr("101-200"));
  }
}

}  // namespace
}  // namespace hanji::report
