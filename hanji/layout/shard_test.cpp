#include "hanji/layout/shard.h"

#include <gtest/gtest.h>

#include <tuple>

namespace hanji::layout {
namespace {

class Shard : public testing::TestWithParam<std::tuple<int, int64_t>> {};

TEST_P(Shard, PiecesCoverTheWholeInOrderAtMultiples) {
  const auto [shards, count] = GetParam();
  int64_t next = 0;
  for (int i = 0; i < shards; ++i) {
    const Range range = shard_range(count, shards, i);
    EXPECT_EQ(range.begin, next);
    EXPECT_GE(range.size(), 0);
    if (!range.empty()) {
      EXPECT_EQ(range.begin % kAlignment, 0);
    }
    EXPECT_LE(range.size(), shard_size(count, shards));
    next = range.end;
  }
  EXPECT_EQ(next, count);
}

INSTANTIATE_TEST_SUITE_P(RanksAndCounts, Shard,
                         testing::Combine(testing::Values(1, 2, 3, 5, 8, 13, 16),
                                          testing::Values(0, 1, 63, 64, 65, 127, 1009, 1 << 20,
                                                          (int64_t{1} << 62) + 1)));

TEST(ShardSize, IsTheCeilingRoundedUp) {
  EXPECT_EQ(shard_size(1000, 3), 384);
  EXPECT_EQ(shard_size(1000, 3, 1), 334);
  EXPECT_EQ(shard_size(0, 3), 0);
}

TEST(ShardRange, LastOnesMayOwnNothing) {
  EXPECT_EQ(shard_range(65, 4, 1), (Range{64, 65}));
  EXPECT_TRUE(shard_range(65, 4, 3).empty());
}

}  // namespace
}  // namespace hanji::layout
