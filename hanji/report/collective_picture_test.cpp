#include "hanji/report/collective_picture.h"

#include <gmock/gmock.h>

#include "hanji/base/json.h"
#include "hanji/base/text.h"

namespace hanji::report {
namespace {

using schedule::Routine;
using testing::ElementsAre;
using testing::HasSubstr;

using Cells = std::vector<std::string>;

TEST(CollectivePicture, EveryRoutineDoesWhatItsNameSays) {
  const auto after = [](Routine routine, int rank) {
    return draw_collective(routine, 3, 1).after[rank];
  };
  const auto before = [](Routine routine, int rank) {
    return draw_collective(routine, 3, 1).before[rank];
  };
  EXPECT_EQ(before(Routine::kBroadcast, 0), Cells{""});
  EXPECT_EQ(after(Routine::kBroadcast, 0), Cells{"b"});
  EXPECT_EQ(after(Routine::kReduce, 1), Cells{"a+b+c"});
  EXPECT_EQ(after(Routine::kReduce, 0), Cells{""});
  EXPECT_EQ(after(Routine::kAllReduce, 2), Cells{"a+b+c"});
  EXPECT_EQ(after(Routine::kGather, 1), (Cells{"a", "b", "c"}));
  EXPECT_EQ(after(Routine::kGather, 2), Cells{""});
  EXPECT_EQ(before(Routine::kScatter, 1), (Cells{"b0", "b1", "b2"}));
  EXPECT_EQ(after(Routine::kScatter, 2), Cells{"b2"});
  EXPECT_EQ(after(Routine::kAllGather, 0), (Cells{"a", "b", "c"}));
  EXPECT_EQ(before(Routine::kReduceScatter, 2), (Cells{"c0", "c1", "c2"}));
  EXPECT_EQ(after(Routine::kReduceScatter, 2), Cells{"a2+b2+c2"});
  EXPECT_EQ(after(Routine::kAllToAll, 2), (Cells{"a2", "b2", "c2"}));
  EXPECT_EQ(before(Routine::kSend, 2), Cells{""});
  EXPECT_EQ(after(Routine::kSend, 2), Cells{"b"}) << "from the root to the rank after it";
  EXPECT_EQ(after(Routine::kSend, 0), Cells{""});
}

TEST(CollectivePicture, NobodyLeavesABarrierBeforeTheLastHasCome) {
  const CollectivePicture picture = draw_collective(Routine::kBarrier, 3, 0);
  EXPECT_EQ(picture.before[0], (Cells{"runs", "waits", "waits"}));
  EXPECT_EQ(picture.before[2], (Cells{"runs", "runs", "runs"}));
  EXPECT_EQ(picture.after[0], Cells{"runs"});
  EXPECT_THAT(legend_of(picture), HasSubstr("until the last has come"));
}

TEST(CollectivePicture, LegendNamesTheLabelsThatAreDrawn) {
  const auto legend = [](Routine routine) { return legend_of(draw_collective(routine, 3, 1)); };
  EXPECT_EQ(legend(Routine::kBroadcast), "b: the buffer of rank 1, [ ]: no part of the call");
  EXPECT_EQ(legend(Routine::kReduceScatter),
            "a: the buffer of rank 0, a0: its piece 0, +: elements added up");
  EXPECT_EQ(legend(Routine::kAllGather), "a: the buffer of rank 0");
  EXPECT_EQ(legend(Routine::kTreeReduce), "");
}

TEST(CollectivePicture, EightRanksFitATerminal) {
  for (int i = 0; i < schedule::kNumRoutines; ++i) {
    const auto routine = static_cast<Routine>(i);
    if (routine == Routine::kReduceScatter || routine == Routine::kAllToAll) continue;
    const std::string text = to_text(draw_collective(routine, kMaxDrawnRanks, 0));
    for (const std::string_view line : base::split(text, '\n')) EXPECT_LE(line.size(), 80u) << line;
  }
}

TEST(CollectivePicture, TextHasALinePerRank) {
  EXPECT_EQ(to_text(draw_collective(Routine::kAllReduce, 2, 0)),
            "        before   after\n"
            "rank 0  [a]      [a+b]\n"
            "rank 1  [b]      [a+b]\n");
  EXPECT_EQ(to_text(draw_collective(Routine::kTreeReduce, 2, 0)), "");
}

TEST(CollectivePicture, SvgHoldsEveryPiece) {
  const std::string svg = to_svg(draw_collective(Routine::kAllToAll, 4, 0));
  EXPECT_THAT(svg, HasSubstr("<svg xmlns=\"http://www.w3.org/2000/svg\""));
  for (const char* piece : {">a0<", ">d3<", ">rank 3<", ">before<", ">all_to_all<"}) {
    EXPECT_THAT(svg, HasSubstr(piece));
  }
  size_t boxes = 0;
  for (size_t at = svg.find("<rect"); at != std::string::npos; at = svg.find("<rect", at + 1)) {
    ++boxes;
  }
  EXPECT_EQ(boxes, 32u);
}

TEST(CollectivePicture, JsonHoldsBothSides) {
  const auto json =
      base::parse_json(to_json(draw_collective(Routine::kAllGather, 2, 0))).or_throw();
  EXPECT_EQ(json["before"][1][0], "b");
  EXPECT_EQ(json["after"][0].size(), 2u);
}

}  // namespace
}  // namespace hanji::report
