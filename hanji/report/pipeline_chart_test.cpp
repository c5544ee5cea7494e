#include "hanji/report/pipeline_chart.h"

#include <gmock/gmock.h>

#include "hanji/base/json.h"
#include "hanji/schedule/pipeline_csv.h"

namespace hanji::report {
namespace {

using schedule::PipelineKind;
using testing::HasSubstr;
using testing::Not;

PipelineChart chart_of(PipelineKind kind, int ranks, int64_t micro_batches) {
  const int stages = stages_per_rank(kind, 2);
  PipelineChart chart{std::string(name_of(kind)), {}, {}};
  chart.schedule = pipeline_schedule(kind, {ranks, micro_batches, stages}).or_throw();
  schedule::PipelineTimes times;
  times.stages.assign(chart.schedule.rank_of_stage.size(),
                      {1.0 / stages, 1.0 / stages, 1.0 / stages});
  chart.timeline = simulate(chart.schedule, times).or_throw();
  return chart;
}

std::string text_of(std::vector<PipelineChart> charts, int width = 100, bool colour = false) {
  return to_text(charts, {width, colour});
}

TEST(PipelineChart, DrawsOneForwardOneBackward) {
  EXPECT_THAT(text_of({chart_of(PipelineKind::k1F1B, 2, 3)}, 40),
              HasSubstr("   0 |0-1-    0===2-1===  2===\n"
                        "   1 |  0-0===1-1===2-2===\n"));
}

TEST(PipelineChart, TellsThePartsOfABackwardAndTheSecondStageOfARankApart) {
  const std::string text = text_of({chart_of(PipelineKind::kZbV, 2, 2)}, 60);
  EXPECT_THAT(text, HasSubstr("   1 |   0--0++1--1++0((0**0<<0~~1((1**1<<1~~\n"));
  EXPECT_THAT(text, HasSubstr("every second stage of a rank: 0+ forward"));
  EXPECT_THAT(text_of({chart_of(PipelineKind::kGpipe, 2, 2)}), Not(HasSubstr("every second")));
}

TEST(PipelineChart, SchedulesSideBySideShareOneScale) {
  const auto text =
      text_of({chart_of(PipelineKind::kNaive, 2, 2), chart_of(PipelineKind::kGpipe, 2, 2)});
  EXPECT_THAT(
      text,
      HasSubstr(
          "   0 |0-----                  0===========1-----                  1===========\n"));
  EXPECT_THAT(text, HasSubstr("   0 |0-----1-----                  0===========1===========\n"));
}

TEST(PipelineChart, WideChartsGoOnBelowAtTwoColumnsPerForward) {
  const std::string text = text_of({chart_of(PipelineKind::k1F1B, 16, 16)}, 100);
  EXPECT_THAT(text, HasSubstr("  from 47.0 s\n"));
  EXPECT_THAT(text, HasSubstr("  15 |                              0-0===1-1==="));
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = text.find('\n', begin);
    EXPECT_LE(end - begin, 100U) << text.substr(begin, end - begin);
    begin = end + 1;
  }
  EXPECT_THAT(text, HasSubstr("1-11==2-12==3-13=="));  // the last digit where there is no room
}

TEST(PipelineChart, ColourComesWithTheCharactersThatTellKindsApart) {
  const auto plain = text_of({chart_of(PipelineKind::k1F1B, 2, 2)});
  EXPECT_THAT(plain, Not(HasSubstr("\x1b")));
  const auto coloured = text_of({chart_of(PipelineKind::k1F1B, 2, 2)}, 100, true);
  EXPECT_THAT(coloured, HasSubstr("\x1b[30;44m0-----"));
  EXPECT_THAT(coloured, HasSubstr("\x1b[30;42m0====="));
}

TEST(PipelineChart, TheTableHasTheFiguresOfTheTextbook) {
  const auto text =
      text_of({chart_of(PipelineKind::k1F1B, 4, 4), chart_of(PipelineKind::kInterleaved, 4, 4),
               chart_of(PipelineKind::kZbV, 4, 4)});
  EXPECT_THAT(text, testing::ContainsRegex("1f1b +4 +21.0 s +0.7500 +0.7500 +4 +12 . 12 +1\n"));
  EXPECT_THAT(text,
              testing::ContainsRegex("interleaved +8 +16.5 s +0.3750 +0.3750 +4 +28 . 28 +1\n"));
  EXPECT_THAT(text, testing::ContainsRegex("zbv +8 .* 24 . 24 +1\n"));
}

TEST(PipelineChart, JsonHasEveryActionWithItsTime) {
  const std::vector charts = {chart_of(PipelineKind::kGpipe, 2, 2)};
  const auto json = base::parse_json(to_json(charts)).or_throw();
  const auto& one = json["schedules"][0];
  EXPECT_EQ(one["name"], "gpipe");
  EXPECT_EQ(one["bubble"], 0.5);
  EXPECT_EQ(one["ranks"][1]["actions"][0], "1RECV_F0");
  EXPECT_EQ(one["ranks"][1]["end"][0], 1.0);
  EXPECT_EQ(one["ranks"][0]["actions"].size(), one["ranks"][0]["begin"].size());
  EXPECT_EQ(one["buffered_messages"], 1);
}

TEST(PipelineChart, SvgHasABoxPerComputationAndEscapesNames) {
  std::vector charts = {chart_of(PipelineKind::kGpipe, 2, 2)};
  charts[0].name = "a<b&c";
  const std::string svg = to_svg(charts);
  size_t boxes = 0;
  for (size_t at = svg.find("<rect x"); at != std::string::npos; at = svg.find("<rect x", at + 1))
    ++boxes;
  EXPECT_EQ(boxes, 8U + 8U);  // and the legend's
  EXPECT_THAT(svg, HasSubstr("a&lt;b&amp;c: 2 ranks"));
}

}  // namespace
}  // namespace hanji::report
