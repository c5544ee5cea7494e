#include "hanji/cost/choose_messages.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <chrono>

#include "hanji/schedule/check.h"
#include "hanji/topology/rank_order.h"

namespace hanji::cost {
namespace {

using schedule::Routine;
using testing::ElementsAre;
using testing::HasSubstr;

MessageQuery of(Routine routine, int64_t count, bool needs_order) {
  MessageQuery query;
  query.query = {.routine = routine, .element_bytes = 4, .ranks = 8, .count = count};
  query.needs_order = needs_order;
  query.network = {.latency_seconds = 50e-6, .bytes_per_second = 1e9};
  return query;
}

std::string winner(const MessageQuery& query) {
  return choose_messages(query).or_throw().front().list.algorithm;
}

TEST(ChooseMessages, TakesTheCheapestBySize) {
  EXPECT_EQ(winner(of(Routine::kAllReduce, 8, false)), "recursive_doubling");
  const auto large = choose_messages(of(Routine::kAllReduce, 1 << 24, false)).or_throw();
  for (size_t i = 1; i < large.size(); ++i) EXPECT_LE(large[i - 1].seconds, large[i].seconds);
  EXPECT_NE(large.front().list.algorithm, "recursive_doubling");
}

TEST(ChooseMessages, OnlyWhatKeepsTheOrderWhereItIsPromised) {
  for (const int64_t count : {8, 1 << 20}) {
    for (const auto& one : choose_messages(of(Routine::kAllReduce, count, true)).or_throw()) {
      EXPECT_TRUE(one.list.keeps_order) << one.list.algorithm;
    }
  }
  MessageQuery narrow = of(Routine::kAllReduce, 1 << 16, true);
  narrow.query.element_bytes = 2;
  for (const auto& one : choose_messages(narrow).or_throw()) {
    EXPECT_FALSE(makes_partial_sums(one.list)) << one.list.algorithm;
  }
}

TEST(ChooseMessages, TakesWhatWasNamedOrRefusesIt) {
  MessageQuery query = of(Routine::kAllReduce, 1 << 20, false);
  query.named = "reduce_broadcast";
  EXPECT_EQ(winner(query), "reduce_broadcast");
  query.named = "ring";
  query.needs_order = true;
  EXPECT_THAT(choose_messages(query).status().message(), HasSubstr("another order"));
  query.named = "rang";
  EXPECT_THAT(choose_messages(query).status().message(), HasSubstr("did you mean ring?"));
}

TEST(SelectMessages, TakesWithoutSimulationWhatASizeOfTheClassTook) {
  Chooser chooser{Rates{}};
  for (const bool needs_order : {false, true}) {
    for (const int64_t count : {0, 1, 8, 1000, 1 << 12, 9 << 12, 1 << 20}) {
      const MessageQuery query = of(Routine::kAllReduce, count, needs_order);
      const auto list = chooser.select_messages(query).or_throw();
      const auto all = choose_messages(query).or_throw();
      EXPECT_EQ(list.count, count);
      EXPECT_TRUE(!needs_order || list.keeps_order);
      // A size and the smallest of its class differ by a quarter at most.
      const auto taken = std::ranges::find(all, list.algorithm,
                                           [](const auto& one) { return one.list.algorithm; });
      ASSERT_NE(taken, all.end());
      EXPECT_EQ(taken->list, list);
      EXPECT_LE(taken->seconds, 1.05 * all.front().seconds) << count;
    }
  }
  const MessageQuery many = of(Routine::kAllReduce, 1 << 20, false);
  const auto start = std::chrono::steady_clock::now();
  (void)choose_messages(many).or_throw();
  const auto simulated = std::chrono::steady_clock::now() - start;
  auto shortest = simulated;
  for (int64_t count = many.query.count; count < many.query.count + 20; ++count) {
    MessageQuery near = many;
    near.query.count = count;
    const auto begin = std::chrono::steady_clock::now();
    (void)chooser.select_messages(near).or_throw();
    shortest = std::min(shortest, std::chrono::steady_clock::now() - begin);
  }
  EXPECT_LT(shortest * 3, simulated);
}

// The order of 8 ranks on two packages of 4 cores, whose cores have these CPUs.
std::vector<int> order_on(const std::vector<int>& cpus) {
  topology::Graph graph;
  const int machine = graph.add({.id = "machine"}, -1);
  for (int package = 0; package < 2; ++package) {
    const int at = graph.add(
        {.id = "package:" + std::to_string(package), .kind = topology::VertexKind::kPackage},
        machine);
    for (int core = 0; core < 4; ++core) {
      const int cpu = cpus[static_cast<size_t>(4 * package + core)];
      graph.add(
          {.id = "core:" + std::to_string(cpu), .kind = topology::VertexKind::kCore, .cpus = {cpu}},
          at);
    }
  }
  return topology::order_ranks(topology::rank_paths({graph}, 8).or_throw()).ranks;
}

// Whom ranks 0, 1, ... send to first.
std::vector<int> first_peers(const schedule::StepList& list) {
  std::vector<int> peers;
  for (const auto& steps : list.per_rank) {
    const auto send = std::ranges::find(steps, schedule::StepKind::kSend, &schedule::Step::kind);
    peers.push_back(send == steps.end() ? -1 : send->peer);
  }
  return peers;
}

TEST(ChooseMessages, TwoTopologiesGiveTwoRingsAndBothAreProved) {
  MessageQuery query = of(Routine::kAllReduce, 1 << 20, false);
  query.named = "ring";
  query.order = order_on({0, 1, 2, 3, 4, 5, 6, 7});
  const auto in_a_row = choose_messages(query).or_throw().front().list;
  EXPECT_THAT(first_peers(in_a_row), ElementsAre(1, 2, 3, 4, 5, 6, 7, 0));
  query.order = order_on({0, 2, 4, 6, 1, 3, 5, 7});
  const auto by_turns = choose_messages(query).or_throw().front().list;
  EXPECT_THAT(first_peers(by_turns), ElementsAre(2, 3, 4, 5, 6, 7, 1, 0));
  for (const auto& list : {in_a_row, by_turns}) EXPECT_EQ(check(list).message(), "");
}

TEST(ChooseMessages, TreesFollowTheTopologyWhereNoPromiseForbidsIt) {
  MessageQuery query = of(Routine::kBroadcast, 1 << 20, true);
  query.query.root = 3;
  query.order = order_on({0, 2, 4, 6, 1, 3, 5, 7});  // ranks 0 2 4 6, then 1 3 5 7
  for (const auto& one : choose_messages(query).or_throw()) {
    EXPECT_EQ(check(one.list).message(), "") << one.list.algorithm;
    EXPECT_EQ(one.list.root, 3);
    if (one.list.algorithm != "binomial") continue;
    int between = 0;  // messages from one package to the other: there is one
    for (int rank = 0; rank < 8; ++rank) {
      for (const schedule::Step& step : one.list.per_rank[static_cast<size_t>(rank)]) {
        between += step.kind == schedule::StepKind::kSend && step.peer % 2 != rank % 2;
      }
    }
    EXPECT_EQ(between, 1);
  }
  query = of(Routine::kAllReduce, 1 << 10, true);
  const auto by_rank = choose_messages(query).or_throw();
  query.order = order_on({0, 2, 4, 6, 1, 3, 5, 7});
  EXPECT_EQ(choose_messages(query).or_throw().front().list, by_rank.front().list);
}

}  // namespace
}  // namespace hanji::cost
