#include "hanji/layout/context.h"

#include <gmock/gmock.h>

#include <numeric>

#include "hanji/layout/ring_steps.h"

namespace hanji::layout {
namespace {

using testing::ElementsAre;

constexpr std::array kWays = {ContextWay::kUlysses, ContextWay::kRing};

TEST(ContextTokens, MakeUpTheSampleOnceWhateverTheRanks) {
  for (const ContextWay way : kWays) {
    for (int ranks = 1; ranks <= 5; ++ranks) {
      for (int64_t tokens = 2 * ranks; tokens < 24; ++tokens) {
        std::vector<int> owners(tokens);
        for (int rank = 0; rank < ranks; ++rank) {
          for (const Range one : context_tokens(tokens, rank, ranks, way)) {
            for (int64_t token = one.begin; token < one.end; ++token) ++owners[token];
          }
        }
        EXPECT_THAT(owners, testing::Each(1)) << tokens << " tokens, " << ranks << " ranks";
        const auto extents = context_extents(tokens, ranks, way);
        EXPECT_EQ(std::reduce(extents.begin(), extents.end()), tokens);
        EXPECT_EQ(extents[0], std::ranges::max(extents)) << "plans count the first rank";
      }
    }
  }
}

/// Pairs of a query and a key at or before it.
int64_t pairs_of(int64_t tokens, int rank, int ranks) {
  int64_t pairs = 0;
  for (const Range one : context_tokens(tokens, rank, ranks, ContextWay::kRing)) {
    for (int64_t query = one.begin; query < one.end; ++query) pairs += query + 1;
  }
  return pairs;
}

TEST(ContextTokens, OfARingMultiplyAsMuchOfTheTriangleOnEveryRank) {
  for (int rank = 0; rank < 4; ++rank) EXPECT_EQ(pairs_of(32, rank, 4), 32 * 33 / 2 / 4);
}

/// The global tokens of a rank in a ring.
std::vector<int64_t> tokens_in_ring(int64_t tokens, int rank, int ranks) {
  std::vector<int64_t> all;
  for (const Range one : context_tokens(tokens, rank, ranks, ContextWay::kRing)) {
    for (int64_t token = one.begin; token < one.end; ++token) all.push_back(token);
  }
  return all;
}

TEST(RingSteps, MeetEachPairOfAQueryAndAKeyBeforeItOnce) {
  for (const int ranks : {2, 3, 4}) {
    for (const int64_t tokens : {8, 11, 24}) {
      std::vector<int> met(tokens * tokens);
      for (int rank = 0; rank < ranks; ++rank) {
        const auto queries = tokens_in_ring(tokens, rank, ranks);
        for (const RingStep& step : ring_steps(tokens, rank, ranks)) {
          const auto keys = tokens_in_ring(tokens, step.owner, ranks);
          for (size_t q = step.first_query; q < queries.size(); ++q) {
            const auto num_keys = step.is_own ? q + 1 : static_cast<size_t>(step.num_keys);
            for (size_t k = 0; k < num_keys; ++k) ++met[queries[q] * tokens + keys[k]];
          }
        }
      }
      for (int64_t query = 0; query < tokens; ++query) {
        for (int64_t key = 0; key < tokens; ++key) {
          ASSERT_EQ(met[query * tokens + key], key <= query ? 1 : 0)
              << query << " and " << key << " of " << tokens << " on " << ranks << " ranks";
        }
      }
    }
  }
}

TEST(ContextHeads, RepeatKeysAndValuesNoMoreThanRanksNeed) {
  EXPECT_EQ(context_repeats({.heads = 8, .kv_heads = 8, .ranks = 3}), 1);
  EXPECT_EQ(context_repeats({.heads = 8, .kv_heads = 2, .ranks = 2}), 1);
  EXPECT_EQ(context_repeats({.heads = 8, .kv_heads = 2, .ranks = 3}), 2);
  EXPECT_EQ(context_repeats({.heads = 6, .kv_heads = 2, .ranks = 3}), 3);
  EXPECT_THAT(context_heads({.heads = 8, .kv_heads = 2, .ranks = 3}), ElementsAre(4, 2, 2));
  EXPECT_THAT(context_heads({.heads = 5, .kv_heads = 5, .ranks = 2}), ElementsAre(3, 2));
}

int64_t sent(const ContextAttention& attention, ContextWay way, bool backward) {
  int64_t sum = 0;
  for (const ContextCall& call : context_calls(attention, way)) {
    sum += call.is_backward == backward ? call.sent() : 0;
  }
  return sum;
}

/// 4 T C (c - 1) / c of T tokens of C features, and 2 T C (c - 1): the formulas of the papers.
TEST(ContextCalls, SendWhatThePapersSay) {
  const ContextAttention attention{
      .tokens = 48, .heads = 12, .kv_heads = 12, .width = 5, .ranks = 4};
  const int64_t whole = 48 * 12 * 5;
  EXPECT_EQ(sent(attention, ContextWay::kUlysses, false), 4 * whole * 3 / 4);
  EXPECT_EQ(sent(attention, ContextWay::kUlysses, true), 4 * whole * 3 / 4);
  EXPECT_EQ(sent(attention, ContextWay::kRing, false), 2 * whole * 3);
  EXPECT_EQ(sent(attention, ContextWay::kRing, true), 2 * 2 * whole * 3);
}

TEST(ContextCalls, OfARingPassFewerKeysAndValuesAsTheyAre) {
  const ContextAttention shared{.tokens = 10, .heads = 6, .kv_heads = 1, .width = 2, .ranks = 3};
  EXPECT_EQ(sent(shared, ContextWay::kRing, false), 2 * 10 * 2 * 2);
  for (const ContextWay way : kWays) EXPECT_TRUE(context_calls({.ranks = 1}, way).empty());
}

}  // namespace
}  // namespace hanji::layout
