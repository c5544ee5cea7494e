#include "hanji/plan/sharding.h"

#include <gtest/gtest.h>

#include <cmath>

namespace hanji::plan {
namespace {

constexpr double kBillion = 1e9;

double gigabytes(Sharding sharding, double billions, int ranks) {
  const ShardRanks all{.ranks = ranks, .hybrid_ranks = ranks};
  return state_bytes(sharding, billions * kBillion, kMixedAdam, all).sum() / 1e9;
}

TEST(StateBytes, SevenBillionInMixedPrecisionAre112Gigabytes) {
  for (const Sharding sharding : kShardings) {
    if (sharding == Sharding::kServer) continue;
    EXPECT_DOUBLE_EQ(gigabytes(sharding, 7, 1), 112) << name_of(sharding);
  }
}

struct Row {
  double billions;
  int ranks;
  double zero1, zero2, zero3;
};

/// ZeRO, table 1, as printed: three digits, the last of them sometimes cut and not rounded.
TEST(StateBytes, AreThoseOfThePublishedTable) {
  const Row rows[] = {{7.5, 1, 120, 120, 120},        {7.5, 4, 52.5, 41.3, 30},
                      {7.5, 16, 35.6, 21.6, 7.5},     {7.5, 64, 31.4, 16.6, 1.88},
                      {7.5, 256, 30.4, 15.4, 0.47},   {7.5, 1024, 30.1, 15.1, 0.12},
                      {128, 1, 2048, 2048, 2048},     {128, 4, 896, 704, 512},
                      {128, 16, 608, 368, 128},       {128, 64, 536, 284, 32},
                      {128, 256, 518, 263, 8},        {128, 1024, 513, 257, 2},
                      {1000, 1, 16000, 16000, 16000}, {1000, 4, 7000, 5500, 4000},
                      {1000, 16, 4750, 2875, 1000},   {1000, 64, 4187, 2218, 250},
                      {1000, 256, 4046, 2054, 62.5},  {1000, 1024, 4011, 2013, 15.6}};
  for (const Row& row : rows) {
    const auto near = [&](Sharding sharding, double published) {
      const double unit = published >= 1000 ? 1 : published >= 2 ? 0.1 : 0.01;
      const double last = published >= 100 ? 1 : unit;
      EXPECT_NEAR(gigabytes(sharding, row.billions, row.ranks), published, last)
          << row.billions << " on " << row.ranks;
    };
    near(Sharding::kZero1, row.zero1);
    near(Sharding::kZero2, row.zero2);
    near(Sharding::kZero3, row.zero3);
  }
}

TEST(StateBytes, HybridShardsWithinItsGroupAlone) {
  const ShardRanks ranks{.ranks = 64, .hybrid_ranks = 8};
  EXPECT_DOUBLE_EQ(state_bytes(Sharding::kHybrid, 1e6, kMixedAdam, ranks).sum(), 16e6 / 8);
}

TEST(StateBytes, AServerHoldsItsShareAndAWorkerNoOptimizer) {
  const ShardRanks ranks{.ranks = 4, .servers = 2};
  const StateBytes worker = state_bytes(Sharding::kServer, 1e6, kMixedAdam, ranks);
  EXPECT_DOUBLE_EQ(worker.sum(), 4e6);
  EXPECT_DOUBLE_EQ(worker.optimizer, 0);
  EXPECT_DOUBLE_EQ(server_bytes(1e6, kMixedAdam, ranks).sum(), 8e6);
}

TEST(SentBytes, AreTwoParametersWorthAndThreeWhereParametersAreSharded) {
  const ShardRanks many{.ranks = 1 << 20, .hybrid_ranks = 8};
  const auto times = [&](Sharding sharding) {
    return std::round(sent_bytes(sharding, 1e9, kMixedAdam, many) / 2e9 * 1000) / 1000;
  };
  EXPECT_EQ(times(Sharding::kReplicas), 2);
  EXPECT_EQ(times(Sharding::kZero1), 2);
  EXPECT_EQ(times(Sharding::kZero2), 2);
  EXPECT_EQ(times(Sharding::kZero3), 3);
  EXPECT_EQ(times(Sharding::kHybrid), std::round((3 * 7.0 / 8 + 2.0 / 8) * 1000) / 1000);
  EXPECT_EQ(sent_bytes(Sharding::kZero3, 1e9, kMixedAdam, {}), 0);
}

}  // namespace
}  // namespace hanji::plan
