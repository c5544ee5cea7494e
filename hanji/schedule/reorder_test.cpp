#include "hanji/schedule/reorder.h"

#include <gmock/gmock.h>

#include <numeric>

#include "hanji/schedule/all_reduce.h"
#include "hanji/schedule/bruck.h"
#include "hanji/schedule/check.h"
#include "hanji/schedule/internal/test_lists.h"
#include "hanji/schedule/linear.h"
#include "hanji/schedule/pipeline.h"
#include "hanji/schedule/ring.h"

namespace hanji::schedule {
namespace {

using internal::describe;
using testing::ElementsAre;
using testing::HasSubstr;

std::vector<int> turned_round(int ranks) {
  std::vector<int> order(static_cast<size_t>(ranks));
  std::iota(order.rbegin(), order.rend(), 0);
  return order;
}

// 0 2 4 ... 1 3 5 ...: two packages whose processors are numbered alternately.
std::vector<int> by_turns(int ranks) {
  std::vector<int> order;
  for (const int first : {0, 1}) {
    for (int rank = first; rank < ranks; rank += 2) order.push_back(rank);
  }
  return order;
}

// Whom each rank, in this order, sends to first.
std::vector<int> first_peers(const StepList& list, const std::vector<int>& order) {
  std::vector<int> peers;
  for (const int rank : order) {
    for (const Step& step : list.per_rank[static_cast<size_t>(rank)]) {
      if (step.kind != StepKind::kSend) continue;
      peers.push_back(step.peer);
      break;
    }
  }
  return peers;
}

TEST(MakeInOrder, EveryAlgorithmIsProvedInEveryOrder) {
  for (const Algorithm& algorithm : message_algorithms()) {
    for (const int ranks : {1, 2, 3, 4, 6, 8}) {
      const ListShape shape{ranks / 2, 3, ranks % 2 == 0 ? 2 : 1};
      for (const auto& order : {turned_round(ranks), by_turns(ranks)}) {
        for (const int64_t count : {0, 5, 1000}) {
          const StepList list = make_in_order(algorithm, ranks, count, shape, order);
          EXPECT_EQ(check(list).message(), "") << describe(list) << " of " << ranks;
          if (algorithm.routine == Routine::kBroadcast) {
            EXPECT_EQ(list.root, shape.root);
          }
          const bool moved = list != algorithm.make(ranks, count, shape);
          if (moved) {
            EXPECT_NE(list.keeps_order, reduces(algorithm.routine));
          }
        }
      }
    }
  }
}

TEST(Reorder, ARingGoesAlongTheOrder) {
  const std::vector<int> order = {0, 2, 1, 3};
  const StepList ring = reorder(all_reduce_ring(4, 64), order).or_throw();
  EXPECT_THAT(first_peers(ring, order), ElementsAre(2, 1, 3, 0));
  const StepList shards = reorder(all_gather_ring(4, 64), order).or_throw();
  EXPECT_THAT(first_peers(shards, order), ElementsAre(2, 1, 3, 0));
  EXPECT_TRUE(shards.keeps_order);
  EXPECT_EQ(check(shards).message(), "");
}

TEST(MakeInOrder, ATreeAndAChainBeginAtTheRootWhereverItStands) {
  const auto all = message_algorithms(Routine::kBroadcast);
  const auto named = [&](std::string_view name) {
    return *std::ranges::find(all, name, &Algorithm::name);
  };
  const std::vector<int> order = {0, 2, 1, 3};
  const StepList chain = make_in_order(named("chain"), 4, 64, {2, 4}, order);
  EXPECT_THAT(first_peers(chain, {2, 1, 3, 0}), ElementsAre(1, 3, 0));
  // Rank 2 serves its neighbour last and the other half of the order first.
  const StepList tree = make_in_order(named("binomial"), 4, 64, {2}, order);
  EXPECT_THAT(first_peers(tree, {2, 1}), ElementsAre(1, 3));
}

TEST(Reorder, RefusesWhatCannotChangePlaces) {
  const std::vector<int> order = {0, 2, 1, 3};
  EXPECT_THAT(reorder(all_gather_bruck(4, 64), order).status().message(),
              HasSubstr("several shares"));
  EXPECT_EQ(reorder(all_reduce_direct(4, 64), order).status().code(), Code::kUnsupported);
  EXPECT_EQ(reorder(all_gather_linear({1, 2, 3, 4}), order).status().code(), Code::kUnsupported);
  EXPECT_EQ(reorder(all_gather_bruck(4, 64), std::vector{0, 1, 2, 3}).or_throw(),
            all_gather_bruck(4, 64));
  for (const auto& bad : {std::vector{0, 1, 2}, {0, 1, 1, 2}, {0, 1, 2, 4}, {0, 1, 2, -1}}) {
    EXPECT_EQ(reorder(all_reduce_ring(4, 64), bad).status().code(), Code::kInvalidArgument);
  }
}

}  // namespace
}  // namespace hanji::schedule
