#include "hanji/cost/linear_region.h"

#include <gmock/gmock.h>

#include <map>

namespace hanji::cost {
namespace {

using testing::HasSubstr;

/// Links that carry every byte in the same time; an all_to_all as every other call.
double by_bytes(schedule::Routine, int64_t bytes) { return static_cast<double>(bytes); }

Moved cheapest(const LinearRegion& region, int ranks = 8) {
  return compare_moved(region, ranks, 2, by_bytes).front().moved;
}

double sent(const LinearRegion& region, Moved moved, int ranks) {
  for (const RegionCost& cost : compare_moved(region, ranks, 1, by_bytes)) {
    if (cost.moved == moved) return cost.sent_bytes;
  }
  return -1;
}

TEST(LinearRegion, MovesWhatHasTheFewestElements) {
  const LinearRegion region{"", 10, 20, 30};
  EXPECT_DOUBLE_EQ(sent(region, Moved::kInput, 4), 2 * 10 * 20 * 0.75);
  EXPECT_DOUBLE_EQ(sent(region, Moved::kOutput, 4), 2 * 10 * 30 * 0.75);
  EXPECT_DOUBLE_EQ(sent(region, Moved::kWeights, 4), 3 * 20 * 30 * 0.75);
}

TEST(LinearRegion, WithFewRowsANarrowOutputMovesAndANarrowInput) {
  constexpr int64_t kNarrow = 256;
  for (const int64_t rows : {int64_t{1}, kNarrow, 16 * kNarrow - 1}) {
    EXPECT_EQ(cheapest({"", rows, 16 * kNarrow, kNarrow}), Moved::kOutput) << rows;
    EXPECT_EQ(cheapest({"", rows, kNarrow, 16 * kNarrow}), Moved::kInput) << rows;
  }
}

TEST(LinearRegion, BeyondOneAndAHalfTimesTheWiderEndTheWeightsMove) {
  constexpr int64_t kNarrow = 256, kWide = 16 * kNarrow;
  for (const int64_t rows : {kWide * 3 / 2 + 1, 4 * kWide}) {
    EXPECT_EQ(cheapest({"", rows, kWide, kNarrow}), Moved::kWeights);
    EXPECT_EQ(cheapest({"", rows, kNarrow, kWide}), Moved::kWeights);
  }
  EXPECT_NE(cheapest({"", kWide * 3 / 2 - 1, kNarrow, kWide}), Moved::kWeights);
}

// An end that must be cut otherwise turns, 1/ranks of the matrix each way.
TEST(LinearRegion, AnEndThatTurnsCostsAnAllToAll) {
  const LinearRegion free{"", 64, 32, 16};
  LinearRegion fixed = free;
  fixed.before = End::kFeatures;
  fixed.after = End::kTokens;
  EXPECT_DOUBLE_EQ(sent(fixed, Moved::kOutput, 4), sent(free, Moved::kOutput, 4));
  EXPECT_DOUBLE_EQ(sent(fixed, Moved::kWeights, 4) - sent(free, Moved::kWeights, 4),
                   2 * 64 * 32 * 0.75 / 4);
  EXPECT_DOUBLE_EQ(sent(fixed, Moved::kInput, 4) - sent(free, Moved::kInput, 4),
                   2 * 64 * 16 * 0.75 / 4);
}

// Between norms that every rank computes, half of the calls of activations are all_reduces.
TEST(LinearRegion, AWholeEndIsCutForNothingAndGatheredOnce) {
  const LinearRegion free{"", 64, 32, 16};
  LinearRegion whole = free;
  whole.before = whole.after = End::kWhole;
  const double input = 64 * 32 * 0.75, output = 64 * 16 * 0.75;
  EXPECT_DOUBLE_EQ(sent(whole, Moved::kInput, 4), sent(free, Moved::kInput, 4) + output);
  EXPECT_DOUBLE_EQ(sent(whole, Moved::kOutput, 4), sent(free, Moved::kOutput, 4) + input);
  EXPECT_DOUBLE_EQ(sent(whole, Moved::kWeights, 4),
                   sent(free, Moved::kWeights, 4) + input + output);
  EXPECT_EQ(calls_of(whole, Moved::kInput)[0].routine, schedule::Routine::kAllReduce);
}

std::map<std::string, Moved> choices(const std::vector<std::string>& layers) {
  std::map<std::string, Moved> chosen;
  for (const std::string& layer : layers) {
    const LinearRegion region = *parse_linear_region(layer, 8192);
    chosen[region.name] = cheapest(region);
  }
  return chosen;
}

// The choices of an integer program over whole models: of 8 B the projection out of attention is
// computed by tokens and all else by columns and rows, of 70 B everything is.
TEST(LinearRegion, ChoosesForLlamasWhatWasPublished) {
  const std::map<std::string, Moved> eight{{"qkv", Moved::kInput},
                                           {"wo", Moved::kWeights},
                                           {"w1w3", Moved::kInput},
                                           {"w2", Moved::kOutput}};
  EXPECT_EQ(choices({"qkv=4096x6144:tokens-features", "wo=4096x4096:features-tokens",
                     "w1w3=4096x28672:tokens-features", "w2=14336x4096:features-tokens"}),
            eight);
  const std::map<std::string, Moved> seventy{{"qkv", Moved::kInput},
                                             {"wo", Moved::kOutput},
                                             {"w1w3", Moved::kInput},
                                             {"w2", Moved::kOutput}};
  EXPECT_EQ(choices({"qkv=8192x10240:tokens-features", "wo=8192x8192:features-tokens",
                     "w1w3=8192x57344:tokens-features", "w2=28672x8192:features-tokens"}),
            seventy);
}

TEST(LinearRegion, OneRankMovesNothing) {
  for (const RegionCost& cost : compare_moved({"", 8, 4, 2}, 1, 4, by_bytes)) {
    EXPECT_EQ(cost.sent_bytes, 0);
    EXPECT_EQ(cost.seconds, 0);
  }
}

TEST(LinearRegion, TextThatIsNoLayerIsRefusedWithTheForm) {
  for (const char* text : {"", "=4x4", "a=4", "a=4x", "a=0x4", "a=4x4x4", "a=4x-4", "a=4x4:tokens",
                           "a=4x4:tokens-rows", "a=4x4:"}) {
    const auto region = parse_linear_region(text, 1);
    ASSERT_FALSE(region.ok()) << text;
    EXPECT_THAT(region.status().message(), HasSubstr("NAME=INPUTSxOUTPUTS"));
  }
}

}  // namespace
}  // namespace hanji::cost
