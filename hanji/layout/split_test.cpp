#include "hanji/layout/split.h"

#include <gmock/gmock.h>

#include <limits>

namespace hanji::layout {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(SplitGrains, WeightsGiveTheirShares) {
  const std::vector<double> weights = {.25, .25, .10, .40};
  const auto ranges = split_grains(100, 4, weights);
  ASSERT_TRUE(ranges.ok());
  EXPECT_THAT(*ranges, ElementsAre(Range{0, 25}, Range{25, 50}, Range{50, 60}, Range{60, 100}));
}

TEST(SplitGrains, EqualSharesGiveTheRestToTheFirstRanks) {
  const auto ranges = split_grains(11, 4);
  ASSERT_TRUE(ranges.ok());
  EXPECT_THAT(*ranges, ElementsAre(Range{0, 3}, Range{3, 6}, Range{6, 9}, Range{9, 11}));
}

TEST(SplitGrains, LargestRemainderWins) {
  const std::vector<double> weights = {1, 1, 1.9};  // quotas 2.56, 2.56, 4.87 of 10
  const auto ranges = split_grains(10, 3, weights);
  ASSERT_TRUE(ranges.ok());
  EXPECT_THAT(*ranges, ElementsAre(Range{0, 3}, Range{3, 5}, Range{5, 10}));
}

TEST(SplitGrains, CoverEveryGrainForEveryNumberOfRanks) {
  for (int ranks = 1; ranks <= 16; ++ranks) {
    for (int64_t grains = ranks; grains < 70; ++grains) {
      const auto ranges = split_grains(grains, ranks);
      ASSERT_TRUE(ranges.ok());
      int64_t next = 0;
      for (const Range& range : *ranges) {
        EXPECT_EQ(range.begin, next);
        EXPECT_GE(range.size(), grains / ranks);
        EXPECT_LE(range.size(), grains / ranks + 1);
        next = range.end;
      }
      EXPECT_EQ(next, grains);
    }
  }
}

TEST(SplitGrains, RefusesFewerGrainsThanRanks) {
  EXPECT_THAT(split_grains(3, 4).status().message(), HasSubstr("3 grains"));
  EXPECT_FALSE(split_grains(3, 0).ok());
}

TEST(SplitGrains, RefusesWeightsThatAreNoShares) {
  const std::vector<double> two = {1, 1};
  EXPECT_THAT(split_grains(10, 3, two).status().message(), HasSubstr("2 weights for 3 ranks"));
  for (const double bad : {0.0, -1.0, std::numeric_limits<double>::quiet_NaN(),
                           std::numeric_limits<double>::infinity()}) {
    const std::vector<double> weights = {1, bad};
    EXPECT_THAT(split_grains(10, 2, weights).status().message(), HasSubstr("train.split[1]"));
  }
}

TEST(SplitGrains, RefusesAWeightThatLeavesARankIdle) {
  const std::vector<double> weights = {1, 1e-6};
  EXPECT_THAT(split_grains(10, 2, weights).status().message(), HasSubstr("rank 1 without"));
}

}  // namespace
}  // namespace hanji::layout
