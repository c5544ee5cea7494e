#include "hanji/schedule/check.h"

#include <gmock/gmock.h>

#include "hanji/schedule/all_gather.h"
#include "hanji/schedule/all_reduce.h"
#include "hanji/schedule/barrier.h"
#include "hanji/schedule/broadcast.h"
#include "hanji/schedule/internal/test_lists.h"

namespace hanji::schedule {
namespace {

using internal::all_lists;
using internal::describe;
using testing::HasSubstr;

class EveryList : public testing::TestWithParam<std::tuple<int, int64_t>> {};

TEST_P(EveryList, IsProved) {
  const auto [ranks, count] = GetParam();
  for (const StepList& list : all_lists(ranks, count)) {
    EXPECT_EQ(check(list).message(), "") << describe(list);
  }
}

INSTANTIATE_TEST_SUITE_P(RanksAndCounts, EveryList,
                         testing::Combine(testing::Values(1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 16),
                                          testing::Values(0, 1, 2, 63, 64, 65, 1009, 4096, 1000001,
                                                          (int64_t{1} << 33) + 7)));

TEST(Check, ManySmallChunksAreProved) {
  for (const int ranks : {1, 2, 3, 8}) {
    EXPECT_EQ(check(all_reduce_staged(ranks, 1009, 7)).message(), "");
    EXPECT_EQ(check(all_reduce_staged(ranks, 1009, 128)).message(), "");
    EXPECT_EQ(check(broadcast_staged(ranks, 100, 0, 1)).message(), "");
  }
}

// Rank 0's first step of `kind`.
Step& first(StepList& list, StepKind kind) {
  for (Step& step : list.per_rank[0]) {
    if (step.kind == kind) return step;
  }
  throw Error(base::not_found("no such step"));
}

TEST(Check, AMissingSyncIsARaceOrADeadlock) {
  StepList list = all_reduce_flat(2, 100);
  list.algorithm = "mine";
  for (auto& steps : list.per_rank) {
    std::erase_if(steps, [](const Step& step) { return step.kind == StepKind::kSync; });
  }
  EXPECT_THAT(check(list).message(), HasSubstr("before the first sync"));
  list = all_reduce_flat(2, 100);
  list.per_rank[1].erase(list.per_rank[1].begin() + 1);
  EXPECT_FALSE(check(list).ok());
  list = barrier(2);
  list.per_rank[1].clear();
  EXPECT_THAT(check(list).message(), HasSubstr("rank 0 waits in sync, rank 1 has finished"));
}

TEST(Check, SendsThatWaitForEachOtherAreADeadlock) {
  StepList list = all_reduce_exchange(2, 1000);
  for (auto& steps : list.per_rank) {
    for (Step& step : steps) step.joined = false;
  }
  EXPECT_THAT(check(list).message(),
              HasSubstr("deadlock: rank 0 waits in send with rank 1, rank 1 waits in send"));
}

TEST(Check, AMessageOfAnotherLengthIsRefused) {
  StepList list = all_reduce_exchange(2, 1000);
  first(list, StepKind::kRecv).count -= 1;
  EXPECT_THAT(check(list).message(), HasSubstr("receives"));
}

TEST(Check, TwoWritersOfOneElementAreNamed) {
  StepList list = all_reduce_direct(2, 128);
  Step& reduce = first(list, StepKind::kReduce);
  reduce.count = 128;  // rank 0 reduces everything, rank 1 its half as well
  EXPECT_THAT(check(list).message(), HasSubstr("ranks 0 and 1 touch element 64"));
}

TEST(Check, InPlaceRunsAreProvedToo) {
  // Every rank pulls all inputs: right in separate memory, a race where input is a shard of output.
  StepList list = all_gather_direct(2, 64);
  list.algorithm = "pull";
  for (int rank = 0; rank < 2; ++rank) {
    auto& steps = list.per_rank[rank];
    Step copy = steps[1];
    steps.erase(steps.begin() + 1);
    for (int owner = 0; owner < 2; ++owner) {
      copy.from = {{owner, Place::kInput, 0, 0}};
      copy.to = {{rank, Place::kOutput, 0, owner * 64}};
      steps.insert(steps.begin() + 1, copy);
    }
  }
  EXPECT_THAT(check(list).message(), HasSubstr("output and input in one place: ranks 0 and 1"));
}

TEST(Check, AnotherOrderIsRefusedUnlessNoOrderIsPromised) {
  StepList list = all_reduce_flat(3, 10);
  for (auto& steps : list.per_rank) steps.back().tree = {0, 1, 2, -1, -1};
  EXPECT_THAT(check(list).message(), HasSubstr("not what all_reduce promises"));
  list.keeps_order = false;
  EXPECT_EQ(check(list).message(), "");
  for (auto& steps : list.per_rank) steps.back().from[0] = steps.back().from[1];
  EXPECT_THAT(check(list).message(), HasSubstr("not what all_reduce promises"));
}

TEST(Check, RoundingTwiceIsRefused) {
  StepList list = all_reduce_flat(1, 10);
  list.algorithm = "twice";
  Step again = list.per_rank[0].back();
  again.from = again.to;
  again.to = {{0, Place::kSlot, 0, 0}};
  list.per_rank[0].push_back(again);
  EXPECT_THAT(check(list).message(), HasSubstr("twice"));
}

TEST(Check, TensorsOfPeersAreLeftAloneOutsideTheSyncs) {
  StepList list = all_reduce_direct(2, 128);
  list.algorithm = "hasty";
  for (auto& steps : list.per_rank) steps.pop_back();
  EXPECT_THAT(check(list).message(), HasSubstr("after the last sync"));
}

TEST(Check, ReadingWhatNobodyWroteIsRefused) {
  StepList list = broadcast_flat(2, 100, 0);
  list.algorithm = "short";
  first(list, StepKind::kCopy).count = 99;
  EXPECT_THAT(check(list).message(), HasSubstr("element 99 of rank 0's slot, which nobody"));
}

TEST(Check, ASuperfluousStepBreaksTheFormula) {
  StepList list = all_gather_flat(2, 100);
  list.per_rank[0].push_back(list.per_rank[0].back());
  EXPECT_THAT(check(list).message(), HasSubstr("the formula says 1, 8, 600, 600, 200"));
  list.algorithm = "patient";  // right, if wasteful, under another name
  EXPECT_EQ(check(list).message(), "");
}

TEST(CheckBounds, RefusesWhatCouldTouchForeignMemory) {
  const auto refused = [](auto change) {
    StepList list = all_reduce_direct(2, 128);
    change(list, list.per_rank[1][1]);
    return !check_bounds(list).ok();
  };
  EXPECT_FALSE(refused([](StepList&, Step&) {}));
  EXPECT_TRUE(refused([](StepList&, Step& step) { step.from[0].begin = 65; }));
  EXPECT_TRUE(refused([](StepList&, Step& step) { step.from[0].begin = -1; }));
  EXPECT_TRUE(refused([](StepList&, Step& step) { step.to[0].begin = INT64_MAX; }));
  EXPECT_TRUE(refused([](StepList&, Step& step) { step.to[0].rank = 2; }));
  EXPECT_TRUE(refused([](StepList&, Step& step) { step.from[1].rank = -1; }));
  EXPECT_TRUE(refused([](StepList&, Step& step) { step.from[1].part = 1; }));
  EXPECT_TRUE(refused([](StepList&, Step& step) { step.from[1].place = Place::kSlot; }));
  EXPECT_TRUE(refused([](StepList&, Step& step) { step.to[1].place = Place::kInput; }));
  EXPECT_TRUE(refused([](StepList&, Step& step) { step.count = 0; }));
  EXPECT_TRUE(refused([](StepList&, Step& step) { step.count = INT64_MAX; }));
  EXPECT_TRUE(refused([](StepList&, Step& step) { step.tree = {0, 1}; }));
  EXPECT_TRUE(refused([](StepList&, Step& step) { step.tree = {0, -1, 1}; }));
  EXPECT_TRUE(refused([](StepList&, Step& step) { step.tree = {0, 0, -1}; }));
  EXPECT_TRUE(refused([](StepList&, Step& step) { step.tree = {0, 2, -1}; }));
  EXPECT_TRUE(refused([](StepList&, Step& step) { step.tree = {}; }));
  EXPECT_TRUE(refused([](StepList&, Step& step) { step.peer = 0; }));
  EXPECT_TRUE(refused([](StepList&, Step& step) { step.kind = StepKind::kCopy; }));
  EXPECT_TRUE(refused([](StepList&, Step& step) { step.kind = StepKind::kSend; }));
  EXPECT_TRUE(refused([](StepList& list, Step&) { list.ranks = 3; }));
  EXPECT_TRUE(refused([](StepList& list, Step&) { list.ranks = 0; }));
  EXPECT_TRUE(refused([](StepList& list, Step&) { list.count = -1; }));
  EXPECT_TRUE(refused([](StepList& list, Step&) { list.count = INT64_MAX; }));
  EXPECT_TRUE(refused([](StepList& list, Step&) { list.root = 1; }));
  EXPECT_TRUE(refused([](StepList& list, Step&) { list.algorithm = "A\n"; }));
  EXPECT_TRUE(refused([](StepList& list, Step&) { list.owners = {{0, 1}, {1, 2}}; }));
}

}  // namespace
}  // namespace hanji::schedule
