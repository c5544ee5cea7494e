#include "hanji/report/bench_case.h"

#include <gmock/gmock.h>

#include "hanji/schedule/step_list.h"

namespace hanji::report {
namespace {

using schedule::Routine;
using testing::ElementsAre;

constexpr int64_t kMiB = int64_t{1} << 20;

BenchCase call_of(Routine routine, int ranks, bool in_place) {
  return {.routine = routine, .bytes = 64 * kMiB, .ranks = ranks, .in_place = in_place};
}

TEST(BenchCase, SharesDivideTheSizeAsNcclTestsDo) {
  EXPECT_EQ(count_of(call_of(Routine::kAllReduce, 4, true)), 16 * kMiB);
  EXPECT_EQ(count_of(call_of(Routine::kAllGather, 4, true)), 4 * kMiB);
  BenchCase odd{.routine = Routine::kReduceScatter, .bytes = 103, .ranks = 3};
  EXPECT_EQ(count_of(odd), 8);
  EXPECT_EQ(size_of(odd), 96);
}

TEST(BenchCase, BusFactorsAreThoseOfNcclTests) {
  EXPECT_DOUBLE_EQ(bus_factor(Routine::kAllReduce, 4), 1.5);
  for (const Routine routine : {Routine::kAllGather, Routine::kReduceScatter, Routine::kAllToAll,
                                Routine::kGather, Routine::kScatter}) {
    EXPECT_DOUBLE_EQ(bus_factor(routine, 4), .75);
  }
  for (const Routine routine : {Routine::kBroadcast, Routine::kReduce, Routine::kSend}) {
    EXPECT_DOUBLE_EQ(bus_factor(routine, 4), 1);
  }
}

// The direct lists move nothing in vain, so their traffic is the least there is; broadcast's reads
// the root's buffer once per rank that gets it.
TEST(BenchCase, TheLeastTrafficIsThatOfTheDirectLists) {
  for (const Routine routine : {Routine::kAllReduce, Routine::kReduceScatter, Routine::kReduce,
                                Routine::kAllGather, Routine::kAllToAll}) {
    const BenchCase call = call_of(routine, 2, routine == Routine::kAllReduce);
    const auto candidates = cost::candidates_for(query_of(call), cost::Rates());
    const auto direct = std::find_if(candidates.begin(), candidates.end(), [](const auto& one) {
      return one.list->algorithm == "direct";
    });
    ASSERT_NE(direct, candidates.end());
    double moved = 0;
    for (int rank = 0; rank < 2; ++rank) {
      const auto traffic = traffic_of(*direct->list, rank);
      moved += 4.0 * static_cast<double>(traffic.read + traffic.written);
    }
    const double gathered_twice = routine == Routine::kAllGather ? 64.0 * kMiB : 0;
    EXPECT_LE(least_traffic(call), moved) << name_of(routine);
    EXPECT_GE(least_traffic(call), moved - gathered_twice) << name_of(routine);
  }
}

TEST(BenchCase, BuffersAreThoseOfTheStepLists) {
  for (int i = 0; i < schedule::kNumRoutines; ++i) {
    const auto routine = static_cast<Routine>(i);
    if (routine == Routine::kTreeReduce) continue;
    BenchCase call = call_of(routine, routine == Routine::kSend ? 2 : 3, false);
    call.root = routine == Routine::kSend ? 0 : 1;
    const auto candidates = cost::candidates_for(query_of(call), cost::Rates());
    for (int rank = 0; rank < call.ranks; ++rank) {
      const BenchBuffers buffers = buffers_of(call, rank);
      const auto& list = *candidates[0].list;
      EXPECT_EQ(buffers.input, elements_of(list, rank, schedule::Place::kInput))
          << name_of(routine);
      EXPECT_EQ(buffers.output, elements_of(list, rank, schedule::Place::kOutput))
          << name_of(routine);
      EXPECT_LE(buffers.offset + std::min(buffers.input, buffers.output), buffers.together());
    }
  }
}

TEST(BenchCase, SizesGrowByFactorOrByStep) {
  EXPECT_THAT(sizes_of({.first = 8, .last = 64}), ElementsAre(8, 16, 32, 64));
  EXPECT_THAT(sizes_of({.first = 8, .last = 70, .factor = 4}), ElementsAre(8, 32));
  EXPECT_THAT(sizes_of({.first = 8, .last = 20, .step = 4}), ElementsAre(8, 12, 16, 20));
  EXPECT_THAT(sizes_of({.first = 8, .last = 8}), ElementsAre(8));
  EXPECT_THAT(sizes_of({.first = 8, .last = 64, .factor = 1}), ElementsAre(8));
}

}  // namespace
}  // namespace hanji::report
