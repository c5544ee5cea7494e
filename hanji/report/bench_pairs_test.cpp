#include "hanji/report/bench_pairs.h"

#include <gmock/gmock.h>

#include <vector>

namespace hanji::report {
namespace {

using testing::HasSubstr;

TEST(BenchPairs, TheRatioIsTheMedianOverPairs) {
  std::vector<BenchPair> pairs;
  for (int i = 0; i < 31; ++i) pairs.push_back({1, 2.0 + i, 1, 1.1});
  const BenchRatio result = compare_pairs(pairs);
  EXPECT_EQ(result.ratio, 17);
  EXPECT_EQ(result.wins, 31);
  EXPECT_LT(result.sign_test, 1e-8);
  EXPECT_LT(result.interval.low, 17);
  EXPECT_GT(result.interval.high, 17);
  EXPECT_GT(result.interval.confidence, .95);
}

TEST(BenchPairs, TiesAreNeitherWonNorLost) {
  const std::vector<BenchPair> pairs = {{1, 1}, {1, 1}, {2, 1}};
  const BenchRatio result = compare_pairs(pairs);
  EXPECT_EQ(result.wins, 0);
  EXPECT_EQ(result.losses, 1);
  EXPECT_EQ(result.ties, 2);
  EXPECT_EQ(result.ratio, 1);
}

TEST(BenchPairs, APairThatTheMachineMovedInIsLeftOut) {
  const std::vector<BenchPair> pairs = {{1, 2, 1, 1.19}, {1, 50, 1, 1.3}, {1, 4, 1.2, 1}};
  const BenchRatio result = compare_pairs(pairs);
  EXPECT_EQ(result.unsteady, 1);
  EXPECT_EQ(result.ratio, 3);
}

TEST(BenchPairs, MostlyMovedIsNoRatio) {
  const std::vector<BenchPair> pairs = {{1, 2, 130e-9, 640e-9}, {1, 2, 640e-9, 130e-9}, {1, 2}};
  const BenchRatio result = compare_pairs(pairs);
  EXPECT_FALSE(result.ratio.has_value());
  EXPECT_THAT(result.reason, HasSubstr("2 of 3 pairs"));
  EXPECT_THAT(result.reason, HasSubstr("640 ns"));
  EXPECT_FALSE(compare_pairs({}).ratio.has_value());
}

}  // namespace
}  // namespace hanji::report
