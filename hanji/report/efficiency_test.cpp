#include "hanji/report/efficiency.h"

#include <gmock/gmock.h>

#include "hanji/report/test_run.h"

namespace hanji::report {
namespace {

using testing::HasSubstr;

TEST(Efficiency, IsThatOfTheSummaryWhereOneRankWasKnown) {
  RunRecords run = test_run::make({.ranks = 4});
  run.summary = R"({"speed_up": 3.2, "efficiency": 0.8})";
  EXPECT_THAT(efficiency_line(run), HasSubstr("80 %: 4 ranks were 3.20 times as fast"));
  EXPECT_EQ(efficiency_hint(run), "");
}

TEST(Efficiency, ElseTheCommandIsSaidThatMeasuresIt) {
  for (const char* summary : {"", "{}", "nonsense", "[1]", R"({"speed_up": "x"})"}) {
    RunRecords run = test_run::make({.ranks = 4});
    run.summary = summary;
    EXPECT_THAT(efficiency_line(run),
                HasSubstr("hanji bench scaling --ranks 1,4 --like /runs/made"));
    EXPECT_EQ(efficiency_hint(run),
              "efficiency: hanji bench scaling --ranks 1,4 --like /runs/made\n");
  }
}

TEST(Efficiency, OneRankHasNone) {
  const RunRecords run = test_run::make({.ranks = 1});
  EXPECT_EQ(efficiency_line(run) + efficiency_hint(run), "");
}

}  // namespace
}  // namespace hanji::report
