#include "hanji/topology/rank_order.h"

#include <gmock/gmock.h>

#include "hanji/topology/graph_text.h"

namespace hanji::topology {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// Two packages of two cores; `cpus` are those of the cores, package by package.
Graph host(const std::vector<int>& cpus) {
  Graph graph;
  const int machine = graph.add({.id = "machine", .kind = VertexKind::kMachine}, -1);
  for (int package = 0; package < 2; ++package) {
    const std::string number = std::to_string(package);
    const std::vector<int> own = {cpus[2 * package], cpus[2 * package + 1]};
    const int at = graph.add({.id = "package:" + number, .kind = VertexKind::kPackage}, machine);
    graph.add({.id = "memory:" + number, .kind = VertexKind::kMemory, .cpus = own}, at);
    const int cache = graph.add({.id = "cache:" + number, .kind = VertexKind::kCache}, at);
    for (const int cpu : own) {
      graph.add({.id = "core:" + std::to_string(cpu), .kind = VertexKind::kCore, .cpus = {cpu}},
                cache);
    }
  }
  return graph;
}

RankOrder order_on(const std::vector<Graph>& hosts, int ranks) {
  return order_ranks(rank_paths(hosts, ranks).or_throw());
}

TEST(RankOrder, TwoTopologiesGiveTwoOrders) {
  const RankOrder in_a_row = order_on({host({0, 1, 2, 3})}, 4);
  EXPECT_THAT(in_a_row.ranks, ElementsAre(0, 1, 2, 3));
  const RankOrder by_turns = order_on({host({0, 2, 1, 3})}, 4);
  EXPECT_THAT(by_turns.ranks, ElementsAre(0, 2, 1, 3));
  ASSERT_FALSE(by_turns.crossings.empty());
  EXPECT_EQ(by_turns.crossings[0], (RankOrder::Crossings{"package", 4, 2}));
  EXPECT_NE(to_text(in_a_row), to_text(by_turns));
  EXPECT_THAT(to_text(by_turns), HasSubstr("ring 0 2 1 3\n"));
  EXPECT_THAT(to_text(by_turns), HasSubstr("tree 0->1; 0->2, 1->3\n"));  // packages meet once
}

TEST(RankOrder, HostsAreCrossedOnceEach) {
  const RankOrder order = order_on({host({0, 2, 1, 3}), host({0, 1, 2, 3})}, 8);
  EXPECT_THAT(order.ranks, ElementsAre(0, 2, 1, 3, 4, 5, 6, 7));
  EXPECT_EQ(order.crossings[0].kind, "host");
  EXPECT_EQ(order.crossings[0].by_order, 2);
}

TEST(RankOrder, GpusLieBehindTheirSwitches) {
  Graph graph;
  const int machine = graph.add({.id = "machine", .kind = VertexKind::kMachine}, -1);
  const int left = graph.add({.id = "bridge:a", .kind = VertexKind::kBridge}, machine);
  const int right = graph.add({.id = "bridge:b", .kind = VertexKind::kBridge}, machine);
  for (const auto& [bus, at] :
       {std::pair{"0000:01:00.0", left}, std::pair{"0000:02:00.0", right},
        std::pair{"0000:03:00.0", left}, std::pair{"0000:04:00.0", right}}) {
    graph.add({.id = std::string("gpu:") + bus, .kind = VertexKind::kGpu, .bus_id = bus}, at);
  }
  const RankOrder order = order_on({graph}, 4);
  EXPECT_THAT(order.ranks, ElementsAre(0, 2, 1, 3));
  EXPECT_EQ(order.crossings[0], (RankOrder::Crossings{"bridge", 4, 2}));
}

TEST(RankOrder, OneRankOrOnePartCrossesNothing) {
  EXPECT_TRUE(order_on({host({0, 1, 2, 3})}, 1).crossings.empty());
  EXPECT_TRUE(order_on({host({0, 1, 2, 3})}, 2).crossings.empty());
  EXPECT_EQ(rank_paths({host({0, 1, 2, 3})}, 5).status().code(), Code::kInvalidArgument);
}

TEST(GraphsFromJson, ReadWhatATopologyWasWrittenAs) {
  const std::string one = graph_json(host({0, 2, 1, 3}), nullptr);
  const auto hosts = graphs_from_json(one);
  ASSERT_TRUE(hosts.ok()) << hosts.status().message();
  EXPECT_THAT(order_on(*hosts, 4).ranks, ElementsAre(0, 2, 1, 3));
  const auto two = graphs_from_json("[" + one + "," + one + "]");
  ASSERT_TRUE(two.ok());
  EXPECT_EQ(two->size(), 2u);
  for (const char* bad : {"{}", "[]", "{\"vertices\": []}", "{\"vertices\": [{\"id\": 1}]}",
                          "{\"vertices\": [{\"id\": \"a\", \"kind\": \"machine\"}, "
                          "{\"id\": \"b\", \"kind\": \"core\", \"parent\": \"c\"}]}"}) {
    EXPECT_EQ(graphs_from_json(bad).status().code(), Code::kCorrupt) << bad;
  }
}

}  // namespace
}  // namespace hanji::topology
