#include "hanji/schedule/pipeline_csv.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hanji/schedule/pipeline_check.h"
#include "hanji/schedule/pipeline_timeline.h"

namespace hanji::schedule {
namespace {

using ::testing::HasSubstr;

std::string mistakes(std::string_view text) {
  return std::string(pipeline_from_csv(text).status().message());
}

TEST(PipelineCsv, EveryKindReadsBackWithItsMessagesAndPlacement) {
  for (const PipelineKind kind : pipeline_kinds()) {
    const auto written = pipeline_schedule(kind, {4, 8, stages_per_rank(kind, 2)}).or_throw();
    const auto read = pipeline_from_csv(to_csv(written)).or_throw();
    EXPECT_EQ(read.ranks, written.ranks) << name_of(kind);
    EXPECT_EQ(read.rank_of_stage, written.rank_of_stage) << name_of(kind);
    EXPECT_EQ(read.shape.num_micro_batches, 8);
    EXPECT_EQ(read.shape.stages_per_rank, written.shape.stages_per_rank);
  }
}

TEST(PipelineCsv, IdleCellsAndOverlapsOfPyTorchAreRead) {
  const auto read = pipeline_from_csv("0F0,,0B0,0F1,0B1\r\n,1F0,(1B0;1F1)OVERLAP_F_B,1I1,1W1\r\n");
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(to_csv(*read), "0F0,0B0,0F1,0B1\n1F0,1B0,1F1,1I1,1W1\n");
  EXPECT_TRUE(check(*read, 1).ok());
}

TEST(PipelineCsv, AllMistakesOfCellsAreReportedAtOnce) {
  const std::string text = mistakes("0F0,0X0,0SEND_F0\n1F,1B0\n\n2F0\n");
  EXPECT_THAT(text, HasSubstr("line 1, cell 2: '0X0' is no computation"));
  EXPECT_THAT(text, HasSubstr("line 1, cell 3: '0SEND_F0'"));
  EXPECT_THAT(text, HasSubstr("line 2, cell 1: '1F'"));
  EXPECT_THAT(text, HasSubstr("line 3: rank 2 computes nothing"));
}

TEST(PipelineCsv, StagesHaveOneRankEach) {
  const std::string text = mistakes("0F0,0B0\n0F0,3F0\n");
  EXPECT_THAT(text, HasSubstr("line 2: stage 0 is on line 1; a stage has one rank"));
  EXPECT_THAT(text, HasSubstr("no line has stage 1\nno line has stage 2"));
}

TEST(PipelineCsv, IncompleteAndDisorderedPassesAreReportedTogether) {
  const std::string text = mistakes("0F0,0B0,0F1\n1B0,1F0,1F1,1I1\n");
  EXPECT_THAT(text, HasSubstr("rank 0 lacks backward of stage 0, micro-batch 1"));
  EXPECT_THAT(text, HasSubstr("rank 1 lacks backward_weight of stage 1, micro-batch 1"));
  EXPECT_THAT(text, HasSubstr("line 2: action 0, backward of stage 1, micro-batch 0"));
}

TEST(PipelineCsv, LongListsOfMistakesEndWithTheirNumber) {
  EXPECT_THAT(mistakes("0F30\n"), HasSubstr("\nand 41 more"));
  EXPECT_THAT(mistakes("4095F60000\n"), HasSubstr("and 4075 more"));
  EXPECT_EQ(mistakes("0F60000\n"),
            "1 stages times 60001 micro-batches take two computations each; the file has 1");
  EXPECT_THAT(mistakes("99999999999999999999F0\n"), HasSubstr("is no computation"));
}

}  // namespace
}  // namespace hanji::schedule
