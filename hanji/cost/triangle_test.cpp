#include "hanji/cost/triangle.h"

#include <gmock/gmock.h>

namespace hanji::cost {
namespace {

using layout::AxialBlock;
using layout::TriangleWay;
using schedule::Routine;

constexpr int64_t kPlenty = int64_t{1} << 40;

/// Of links on which a rank sends `rate` bytes a second, after `latency` seconds a call.
SecondsOf links(int ranks, double rate, double latency) {
  return [=](Routine, int64_t bytes) {
    // Of a whole tensor a rank sends its part to all others; of what turns all but its own.
    return latency + static_cast<double>(bytes) * (ranks - 1) / ranks / rate;
  };
}

TriangleWay picked(int ranks, int64_t free_bytes, double latency = 0) {
  const AxialBlock block{.ranks = ranks};
  return cheapest_triangle(compare_triangles(block, 4, links(ranks, 1e9, latency)), 48, free_bytes);
}

/// 2 x 2 (p - 1) U of gather, against 2 x 6 (1 - 1 / p) U: equal at p = 3.
TEST(TrianglePick, GathersOnTwoRanksAndMovesChannelsOnFourWhereBytesDecide) {
  EXPECT_EQ(picked(2, kPlenty), TriangleWay::kGather);
  EXPECT_EQ(picked(4, kPlenty), TriangleWay::kChannels);
  EXPECT_EQ(picked(8, kPlenty), TriangleWay::kChannels);
}

/// 48 blocks of 256 x 256 x 128 float32 keep 1.6 GB that do not divide; of what passes, half a pair tensor less.
TEST(TrianglePick, DoesNotGatherWhatDoesNotFit) {
  constexpr int64_t kPair = int64_t{256} * 256 * 128 * 4;
  EXPECT_EQ(picked(2, 95 * kPair / 2), TriangleWay::kGather);
  EXPECT_NE(picked(2, 95 * kPair / 2 - 1), TriangleWay::kGather);
  EXPECT_EQ(picked(2, -kPair), TriangleWay::kChannels) << "which divide, whether they fit or not";
}

TEST(TrianglePick, CountsCallsWhereLatencyDecides) {
  // 4 collectives against 8 and 5 p - 4.
  EXPECT_EQ(picked(4, kPlenty, 10.0), TriangleWay::kGather);
}

TEST(TrianglePick, PricesTheBytesThatTheBlockMoves) {
  for (const int ranks : {2, 3, 7}) {
    const AxialBlock block{.residues = 25, .width = 6, .ranks = ranks};
    const int64_t pair = int64_t{25} * 25 * 6 * 4;
    for (const TriangleCost& one : compare_triangles(block, 4, links(ranks, 1, 0))) {
      const bool gathers = one.way == TriangleWay::kGather;
      if (gathers) {
        EXPECT_EQ(one.moved_bytes, 4 * (ranks - 1) * pair);
      }
      EXPECT_EQ(one.kept_bytes, gathers ? pair : 0);
      // Links that carry a rank's bytes alone: each sends its share of all.
      const double all = static_cast<double>(one.moved_bytes) / ranks;
      EXPECT_NEAR(one.seconds, all, 0.1 * all) << ranks << static_cast<int>(one.way);
    }
  }
}

}  // namespace
}  // namespace hanji::cost
