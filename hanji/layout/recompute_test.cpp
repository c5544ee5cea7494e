#include "hanji/layout/recompute.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <random>

namespace hanji::layout {
namespace {

TEST(Recompute, ThePeakCountsTheBlockThatIsComputedAgain) {
  const std::vector<BlockCost> blocks{{100, 10, 1}, {200, 10, 1}, {50, 10, 1}};
  EXPECT_EQ(peak_bytes(blocks, {false, false, false}), 350);
  EXPECT_EQ(peak_bytes(blocks, {true, true, true}), 10 + 10 + 200);
  EXPECT_EQ(peak_bytes(blocks, {false, true, false}), 100 + 10 + 200);
}

TEST(Recompute, EqualBlocksAreKeptAsFarAsTheyFit) {
  const std::vector<BlockCost> blocks(12, {100, 4, 7});
  EXPECT_EQ(choose_recomputed(blocks, 1200)->flops, 0);
  for (int64_t budget = 150; budget < 1200; budget += 35) {
    const auto choice = *choose_recomputed(blocks, budget);
    const auto again = std::count(choice.recomputed.begin(), choice.recomputed.end(), true);
    EXPECT_LE(choice.peak_bytes, budget);
    EXPECT_EQ(choice.flops, 7.0 * static_cast<double>(again));
    // One fewer fits nowhere: the last of them holds its input and its own bytes, others theirs.
    EXPECT_GT((12 - (again - 1)) * 100 + (again - 1) * 4, budget - 100) << budget;
  }
}

TEST(Recompute, NoOtherChoiceIsCheaper) {
  std::mt19937 random(1);
  for (int round = 0; round < 200; ++round) {
    std::vector<BlockCost> blocks(1 + random() % 8);
    for (auto& block : blocks) {
      block = {static_cast<int64_t>(random() % 100), static_cast<int64_t>(random() % 30),
               static_cast<double>(random() % 50)};
    }
    const auto budget = static_cast<int64_t>(random() % 300);
    double best = -1;
    for (unsigned bits = 0; bits < 1U << blocks.size(); ++bits) {
      std::vector<bool> recomputed;
      double flops = 0;
      for (size_t i = 0; i < blocks.size(); ++i) {
        recomputed.push_back((bits >> i & 1) != 0);
        if (recomputed.back()) flops += blocks[i].flops;
      }
      if (peak_bytes(blocks, recomputed) <= budget && (best < 0 || flops < best)) best = flops;
    }
    const auto choice = choose_recomputed(blocks, budget);
    ASSERT_EQ(choice.ok(), best >= 0) << round;
    if (!choice.ok()) continue;
    EXPECT_EQ(choice->flops, best) << round;
    EXPECT_EQ(choice->peak_bytes, peak_bytes(blocks, choice->recomputed));
  }
}

TEST(Recompute, LargeBlocksStayWithinTheBudget) {
  const int64_t gib = int64_t{1} << 30;
  std::vector<BlockCost> blocks;
  for (int64_t i = 0; i < 64; ++i) blocks.push_back({gib + i * 12345, gib / 40, 1e12});
  const auto choice = *choose_recomputed(blocks, 20 * gib);
  EXPECT_LE(choice.peak_bytes, 20 * gib);
  EXPECT_GT(choice.peak_bytes, 19 * gib) << "a block more would have fitted";
}

TEST(Recompute, WhatCannotFitIsToldInBytes) {
  const std::vector<BlockCost> blocks(3, {2048, 1024, 1});
  const Status status = choose_recomputed(blocks, 4000).status();
  EXPECT_EQ(status.code(), Code::kOutOfMemory);
  EXPECT_THAT(status.message(), testing::HasSubstr("need 4.10 kB"));
  EXPECT_EQ(choose_recomputed({{{-1, 0, 0}}}, 10).status().code(), Code::kInvalidArgument);
  EXPECT_TRUE(choose_recomputed({}, 0).ok());
}

}  // namespace
}  // namespace hanji::layout
