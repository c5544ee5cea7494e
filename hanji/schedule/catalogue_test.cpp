#include "hanji/schedule/catalogue.h"

#include <gmock/gmock.h>

#include <bit>
#include <set>
#include <tuple>

#include "hanji/schedule/binomial.h"
#include "hanji/schedule/check.h"
#include "hanji/schedule/double_tree.h"
#include "hanji/schedule/internal/test_lists.h"
#include "hanji/schedule/pipeline.h"
#include "hanji/schedule/recursive.h"
#include "hanji/schedule/ring.h"

namespace hanji::schedule {
namespace {

using internal::describe;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr int64_t kCounts[] = {0, 1, 2, 5, 15, 16, 17, 1000, (int64_t{1} << 33) + 7};

class EveryAlgorithm : public testing::TestWithParam<int> {};

// Every list that the algorithm makes for these ranks and this count.
std::vector<StepList> lists_of(const Algorithm& algorithm, int ranks, int64_t count) {
  std::vector<StepList> lists;
  for (const int root : std::set{0, ranks / 2, ranks - 1}) {
    for (const int segments : {1, 2, 7}) {
      for (int per_host = 1; per_host <= ranks; ++per_host) {
        if (ranks % per_host != 0) continue;
        const StepList list = algorithm.make(ranks, count, {root, segments, per_host});
        if (std::find(lists.begin(), lists.end(), list) == lists.end()) lists.push_back(list);
        if (!algorithm.is_hierarchical) break;
      }
      if (!algorithm.is_pipelined) break;
    }
  }
  return lists;
}

TEST_P(EveryAlgorithm, IsProvedAndMovesWhatItsFormulaSays) {
  for (const Algorithm& algorithm : message_algorithms()) {
    for (const int64_t count : kCounts) {
      for (const StepList& list : lists_of(algorithm, GetParam(), count)) {
        EXPECT_EQ(check(list).message(), "") << describe(list) << " root " << list.root;
        EXPECT_EQ(list.routine, algorithm.routine);
        EXPECT_EQ(list.algorithm, algorithm.name);
        EXPECT_FALSE(touches_peer_tensors(list)) << describe(list);
        EXPECT_EQ(num_syncs(list), 0) << describe(list);
      }
    }
  }
}

TEST_P(EveryAlgorithm, HasAsManyStepsAsAreCountedBefore) {
  const int ranks = GetParam();
  for (const Algorithm& algorithm : message_algorithms()) {
    for (const int64_t count : kCounts) {
      const ListShape shape{ranks - 1, 3, ranks, {}};
      int64_t steps = 0;
      for (const auto& one : algorithm.make(ranks, count, shape).per_rank) steps += std::ssize(one);
      EXPECT_EQ(num_steps(algorithm, ranks, count, shape), steps) << algorithm.name;
    }
  }
}

TEST_P(EveryAlgorithm, OneRanksStepsAreThoseItHasInTheWholeList) {
  const int ranks = GetParam();
  for (const Algorithm& algorithm : message_algorithms()) {
    if (!algorithm.is_symmetric) continue;
    for (const int64_t count : kCounts) {
      ListShape shape{ranks / 2, 3, ranks % 2 == 0 ? 2 : 1, {}};
      const StepList whole = algorithm.make(ranks, count, shape);
      for (int rank = 0; rank < ranks; ++rank) {
        shape.kept.rank = rank;
        StepList one = algorithm.make(ranks, count, shape);
        EXPECT_THAT(check_bounds(one).message(), HasSubstr("only the steps of rank"));
        ASSERT_EQ(one.per_rank[rank], whole.per_rank[rank]) << describe(whole) << " rank " << rank;
        one.per_rank = whole.per_rank;
        one.kept = {};
        EXPECT_EQ(one, whole) << "but for the steps of the others";
      }
    }
  }
}

// A rank's messages, seen from its place: kind, how far the peer is, and elements.
std::vector<std::tuple<StepKind, int, int64_t>> seen_from(const StepList& list, int rank,
                                                          const auto& distance) {
  std::vector<std::tuple<StepKind, int, int64_t>> messages;
  for (const Step& step : list.per_rank[rank]) {
    if (is_message(step.kind)) {
      messages.emplace_back(step.kind, distance(step.peer, rank), step.count);
    }
  }
  return messages;
}

TEST_P(EveryAlgorithm, OfEvenSlicesAllRanksDoTheSame) {
  const int ranks = GetParam();
  const auto around = [&](int peer, int rank) { return (peer - rank + ranks) % ranks; };
  const auto bits = [](int peer, int rank) { return peer ^ rank; };
  for (const Algorithm& algorithm : message_algorithms()) {
    const bool turns =
        std::set<std::string_view>{"ring", "bruck", "pairwise"}.contains(algorithm.name);
    const bool pairs =
        std::set<std::string_view>{"recursive_doubling", "rabenseifner", "recursive_halving"}
            .contains(algorithm.name);
    if (!turns && !(pairs && std::has_single_bit(static_cast<unsigned>(ranks)))) continue;
    const StepList list = algorithm.make(ranks, 64 * ranks, {});
    for (int rank = 1; rank < ranks; ++rank) {
      const bool same = turns ? seen_from(list, rank, around) == seen_from(list, 0, around)
                              : seen_from(list, rank, bits) == seen_from(list, 0, bits);
      EXPECT_TRUE(same) << describe(list) << " rank " << rank;
    }
  }
}

TEST_P(EveryAlgorithm, KeepsOrderExactlyWhereItSaysSo) {
  for (const Algorithm& algorithm : message_algorithms()) {
    StepList list = algorithm.make(GetParam(), 1000, {});
    const bool says_so = list.keeps_order;
    list.keeps_order = true;
    EXPECT_EQ(check(list).ok(), says_so) << describe(list);
  }
}

TEST_P(EveryAlgorithm, RunsToTheSumOfSmallWholeNumbers) {
  const int ranks = GetParam();
  for (const Algorithm& algorithm : message_algorithms()) {
    if (algorithm.routine != Routine::kAllReduce) continue;
    const StepList list = algorithm.make(ranks, 37, {0, 3, ranks});
    std::vector<std::vector<internal::Tensor>> inputs(ranks, {internal::Tensor(37)});
    for (int rank = 0; rank < ranks; ++rank) {
      for (int i = 0; i < 37; ++i) inputs[rank][0][i] = static_cast<float>(i + rank);
    }
    for (const auto& output : internal::interpret(list, inputs)) {
      for (int i = 0; i < 37; ++i) {
        ASSERT_EQ(output[i], static_cast<float>(ranks * i + ranks * (ranks - 1) / 2))
            << describe(list);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, EveryAlgorithm, testing::Range(1, 17));

TEST(KeepsOrder, IsAsTheHeadersSay) {
  std::set<int> doubling;
  for (int ranks = 1; ranks <= 16; ++ranks) {
    EXPECT_TRUE(all_reduce_reduce_broadcast(ranks, 10).keeps_order);
    EXPECT_EQ(all_reduce_ring(ranks, 10).keeps_order, ranks <= 2);
    const bool keeps = all_reduce_rabenseifner(ranks, 10).keeps_order;
    EXPECT_EQ(all_reduce_recursive_doubling(ranks, 10).keeps_order, keeps);
    if (keeps) doubling.insert(ranks);
  }
  EXPECT_THAT(doubling, ElementsAre(1, 2, 3, 4, 6, 7, 8, 12, 14, 15, 16));
}

// "0->4", ... of every send, by rank.
std::vector<std::string> sends_of(const StepList& list) {
  std::vector<std::string> sends;
  for (int rank = 0; rank < list.ranks; ++rank) {
    for (const Step& step : list.per_rank[rank]) {
      if (step.kind != StepKind::kSend) continue;
      sends.push_back(std::to_string(rank) + "->" + std::to_string(step.peer));
    }
  }
  return sends;
}

TEST(Binomial, ServesTheFarthestFirst) {
  EXPECT_THAT(sends_of(broadcast_binomial(8, 10, 0)),
              ElementsAre("0->4", "0->2", "0->1", "2->3", "4->6", "4->5", "6->7"));
}

TEST(Binomial, EveryRootIsServedInAsManyRounds) {
  for (int root = 0; root < 8; ++root) {
    const StepList list = broadcast_binomial(8, 10, root);
    EXPECT_EQ(sends_of(list).size(), 7u);
    for (const auto& steps : list.per_rank) EXPECT_LE(steps.size(), 4u);  // 3 rounds and a copy
  }
}

TEST(DoubleTree, WhoPassesOnInOneOnlyReceivesInTheOther) {
  for (int ranks = 3; ranks <= 16; ++ranks) {
    const StepList list = broadcast_double_tree(ranks, 1000, 0, 1);
    for (int rank = 1; rank < ranks; ++rank) {
      std::set<int64_t> passed_on;  // by where the half begins
      for (const Step& step : list.per_rank[rank]) {
        if (step.kind == StepKind::kSend) passed_on.insert(step.from[0].begin);
      }
      EXPECT_LE(passed_on.size(), 1u) << ranks << " ranks, rank " << rank;
    }
  }
}

TEST(Hierarchical, AHostSendsTheLeastThereCanBe) {
  const int64_t count = 3600;
  for (const int hosts : {2, 3, 4}) {
    const int inside = 12 / hosts;
    const StepList list = all_reduce_hierarchical(12, count, inside);
    int64_t sent = 0;
    for (int rank = 0; rank < inside; ++rank) {  // of host 0
      for (const Step& step : list.per_rank[rank]) {
        if (step.kind == StepKind::kSend && step.peer >= inside) sent += step.count;
      }
    }
    EXPECT_EQ(sent, 2 * count * (hosts - 1) / hosts);
  }
}

TEST(Makers, RefuseShapesThatAreNone) {
  EXPECT_THROW(broadcast_chain(4, 10, 0, 0), Error);
  EXPECT_THROW(broadcast_double_tree(4, 10, 4, 1), Error);
  EXPECT_THROW(all_reduce_double_tree(4, 10, 0), Error);
  EXPECT_THROW(all_reduce_hierarchical(6, 10, 4), Error);
  EXPECT_THROW(all_reduce_hierarchical(6, 10, 0), Error);
  EXPECT_THROW(all_reduce_ring(0, 10), Error);
}

TEST(Check, ARingThatSendsBeforeItReceivesWaitsForEver) {
  StepList list = all_gather_ring(3, 8);
  for (auto& steps : list.per_rank) {
    for (Step& step : steps) step.joined = false;
  }
  EXPECT_THAT(check(list).message(), HasSubstr("deadlock: rank 0 waits in send with rank 1"));
}

TEST(Check, AGroupMayNotReceiveWhatItSends) {
  StepList list = all_gather_ring(3, 8);
  list.algorithm = "mine";
  for (Step& step : list.per_rank[1]) {
    if (step.kind == StepKind::kRecv) {
      step.to[0].begin = 8;
      break;
    }
  }
  EXPECT_THAT(check(list).message(), HasSubstr("rank 1, step 1: joins a recv to a message"));
}

TEST(Check, APartialSumIsNoResult) {
  StepList list = all_reduce_recursive_doubling(2, 10);
  list.per_rank[0].back().kind = StepKind::kCombine;
  EXPECT_THAT(check(list).message(), HasSubstr("rank 0's output is not what all_reduce promises"));
  list = all_reduce_recursive_doubling(4, 10);
  for (auto& steps : list.per_rank) {
    for (Step& step : steps) {
      if (step.kind == StepKind::kCombine) step.kind = StepKind::kReduce;
    }
  }
  EXPECT_THAT(check(list).message(), HasSubstr("twice"));
}

TEST(CheckBounds, JoinedStepsFollowMessages) {
  StepList list = all_gather_ring(2, 8);
  list.per_rank[0][1].joined = true;  // the copy before is no message
  EXPECT_THAT(check_bounds(list).message(), HasSubstr("joined to a step that is neither"));
  list = all_gather_ring(2, 8);
  list.per_rank[0][0].joined = true;
  EXPECT_FALSE(check_bounds(list).ok());
  list.per_rank[0][0].joined = false;
  list.parameter = -1;
  EXPECT_FALSE(check_bounds(list).ok());
}

}  // namespace
}  // namespace hanji::schedule
