#include "hanji/topology/pair_kinds.h"

#include <gmock/gmock.h>

#include "hanji/topology/read_graph.h"

namespace hanji::topology {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

Graph imagine(const std::string& description) {
  auto graph = read_graph({.synthetic = description, .root = "/nowhere", .nvml = "no.so"});
  EXPECT_TRUE(graph.ok()) << graph.status().to_string();
  return *std::move(graph);
}

TEST(Pairs, OneOfEachKindNearestFirst) {
  const Graph graph = imagine("pack:2 numa:2 l3:2 core:2 pu:2");
  EXPECT_THAT(representative_pairs(graph, {0, 1, 2, 4, 8, 16}),
              ElementsAre(CpuPair{PairKind::kSameCore, 0, 1}, CpuPair{PairKind::kSameCache, 0, 2},
                          CpuPair{PairKind::kSameNuma, 0, 4}, CpuPair{PairKind::kOtherNuma, 0, 8},
                          CpuPair{PairKind::kOtherPackage, 0, 16}));
}

TEST(Pairs, OnlyAmongAllowedCpus) {
  const Graph graph = imagine("pack:2 l3:1 core:2 pu:1");
  EXPECT_THAT(representative_pairs(graph, {1, 3}),
              ElementsAre(CpuPair{PairKind::kOtherPackage, 1, 3}));
  EXPECT_THAT(representative_pairs(graph, {2}), IsEmpty());
}

TEST(CopyCounts, EveryNumberOfFewCoresAndPowersOfTwoOfMany) {
  EXPECT_THAT(copy_counts(0), IsEmpty());
  EXPECT_THAT(copy_counts(1), ElementsAre(1));
  EXPECT_THAT(copy_counts(3), ElementsAre(1, 2, 3));
  EXPECT_THAT(copy_counts(12), ElementsAre(1, 2, 4, 8, 12));
  EXPECT_THAT(copy_counts(16), ElementsAre(1, 2, 4, 8, 16));
}

}  // namespace
}  // namespace hanji::topology
