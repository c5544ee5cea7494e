#include "hanji/plan/context.h"

#include <gmock/gmock.h>

#include "hanji/plan/test_plan.h"

namespace hanji::plan {
namespace {

Config gpt_on(int64_t ranks) {
  Config config;
  config.model = {.preset = "char", .heads = 4, .width = 128, .block = 64};
  config.mesh.cp = ranks;
  return config;
}

TEST(ContextWays, OfMoreRanksThanHeadsAreARing) {
  EXPECT_EQ(context_way(gpt_on(4)), ContextWay::kUlysses);
  EXPECT_EQ(context_way(gpt_on(5)), ContextWay::kRing);
}

TEST(ContextWays, AreLeftToTheRatesWhereBothServe) {
  EXPECT_TRUE(leaves_context_open(gpt_on(4)));
  EXPECT_FALSE(leaves_context_open(gpt_on(1)));
  EXPECT_FALSE(leaves_context_open(gpt_on(5))) << "fewer heads than ranks";
  Config config = gpt_on(2);
  config.model.dropout = 0.1;
  EXPECT_FALSE(leaves_context_open(config)) << "a ring drops no weights";
  config = gpt_on(2);
  config.parallel.context = ContextWay::kRing;
  EXPECT_FALSE(leaves_context_open(config));
}

TEST(ContextCosts, NameOnlyWaysThatServe) {
  const cost::Rates rates = test_plan::two_cores().rates;
  const layout::ContextAttention few{
      .tokens = 64, .heads = 2, .kv_heads = 2, .width = 8, .ranks = 3};
  const auto rings = compare_context(few, 1, 4, rates);
  ASSERT_EQ(rings.size(), 1);
  EXPECT_EQ(rings[0].way, ContextWay::kRing);
  const layout::ContextAttention shortest{
      .tokens = 5, .heads = 4, .kv_heads = 4, .width = 8, .ranks = 3};
  EXPECT_EQ(compare_context(shortest, 1, 4, rates).at(0).way, ContextWay::kUlysses);
}

TEST(ContextCosts, OfANetworkAreTheBytesOfTheRankThatSendsMost) {
  const layout::ContextAttention even{
      .tokens = 64, .heads = 8, .kv_heads = 8, .width = 16, .ranks = 4};
  const auto costs = compare_context(even, 2, 4, cost::Network{1e-6, 1e9});
  const auto ring = std::ranges::find(costs, ContextWay::kRing, &ContextCost::way);
  const auto ulysses = std::ranges::find(costs, ContextWay::kUlysses, &ContextCost::way);
  ASSERT_TRUE(ring != costs.end() && ulysses != costs.end());
  const auto seconds = [](const ContextCost& cost, int messages) {
    return static_cast<double>(cost.forward_bytes + cost.backward_bytes) / 4 / 1e9 +
           messages * 1e-6;
  };
  int ring_messages = 0;  // a rank has one neighbour, and Ulysses three
  int ulysses_messages = 0;
  for (const auto& call : layout::context_calls(even, ContextWay::kRing))
    ring_messages += call.sent() > 0;
  for (const auto& call : layout::context_calls(even, ContextWay::kUlysses))
    ulysses_messages += 3 * (call.sent() > 0);
  EXPECT_NEAR(ring->transfer_seconds, seconds(*ring, ring_messages), 1e-12);
  EXPECT_NEAR(ulysses->transfer_seconds, seconds(*ulysses, ulysses_messages), 1e-12);
}

/// One head of keys for 32 of queries: a ring passes 1/16 of what Ulysses turns. With as many, twice as much.
TEST(ContextCosts, FollowTheHeadsOfKeysAndValues) {
  const cost::Rates rates = test_plan::two_cores().rates;
  const auto cheaper = [&](int64_t kv_heads) {
    const auto costs = compare_context(
        {.tokens = 8192, .heads = 32, .kv_heads = kv_heads, .width = 64, .ranks = 4}, 1, 4, rates);
    EXPECT_LE(costs[0].seconds(), costs[1].seconds());
    return std::ranges::min(costs, {}, &ContextCost::transfer_seconds).way;
  };
  EXPECT_EQ(cheaper(32), ContextWay::kUlysses);
  EXPECT_EQ(cheaper(1), ContextWay::kRing);
}

}  // namespace
}  // namespace hanji::plan
