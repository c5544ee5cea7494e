#include "hanji/report/step_series.h"

#include <gtest/gtest.h>

#include "hanji/report/test_run.h"

namespace hanji::report {
namespace {

TEST(StepSeries, OfFewStepsHasAColumnEachButTheFirst) {
  const RunRecords run = test_run::make({.ranks = 2, .steps = 30});
  const RankSeries series = series_of(run.ranks[0], 30);
  ASSERT_EQ(series.columns.size(), 29u);
  EXPECT_EQ(series.columns.front().column, 1);
  EXPECT_EQ(series.columns.back().column, 29);
  EXPECT_EQ(series.columns[3].longest, run.ranks[0].accounts[4].seconds);
}

TEST(StepSeries, OfManyStepsKeepsTheLongestAndTheShortestOfAColumn) {
  RunRecords run = test_run::make({.ranks = 1, .steps = 5000, .noise = 0.001});
  run.ranks[0].accounts[2503].seconds = 7;
  run.ranks[0].accounts[2504].seconds = 0.001;
  const RankSeries series = series_of(run.ranks[0], 5000);
  ASSERT_EQ(series.columns.size(), static_cast<size_t>(kSeriesColumns));
  const auto column = static_cast<size_t>(column_of(2504, 5000));
  EXPECT_EQ(series.columns[column].longest, 7);
  EXPECT_EQ(series.columns[column].shortest, 0.001);
}

TEST(StepSeries, AnAccountOfSeveralStepsFillsTheirColumns) {
  const RankSteps rank{.rank = 0,
                       .accounts = {{.step = 1}, {.step = 5, .steps = 4, .seconds = 8, .data = 4}}};
  const RankSeries series = series_of(rank, 5);
  ASSERT_EQ(series.columns.size(), 4u);
  EXPECT_EQ(series.columns[2].longest, 2);
  EXPECT_EQ(series.columns[2].data, 1);
  EXPECT_FALSE(series.columns[2].skew.has_value());
}

TEST(StepSeries, OfACurveKeepsBothEndsOfAColumn) {
  std::vector<TrainingLog::Point> points;
  for (int64_t step = 1; step <= 6400; ++step) points.push_back({step, step % 2 == 0 ? 1.0 : 2.0});
  const auto curve = curve_of(points, 6400);
  ASSERT_EQ(curve.size(), 640u);
  EXPECT_EQ(curve[5].least, 1);
  EXPECT_EQ(curve[5].most, 2);
}

}  // namespace
}  // namespace hanji::report
