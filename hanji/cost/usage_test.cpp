#include "hanji/cost/usage.h"

#include <gtest/gtest.h>

#include "hanji/schedule/all_reduce.h"
#include "hanji/schedule/barrier.h"
#include "hanji/schedule/broadcast.h"

namespace hanji::cost {
namespace {

// Sums over all levels, so that a test need not know how a working set falls between two.
struct Sums {
  explicit Sums(const std::vector<double>& usage)
      : call(usage[0]), sync(usage[1]), step(usage[2]), wake(usage[3]) {
    for (size_t level = 0; level < kLevelBytes.size(); ++level) {
      const double* at = usage.data() + kCommonUnknowns + level * kLevelUnknowns;
      read += at[0], write += at[1], update += at[2], pass += at[3], claim += at[4];
      others += at[5];
      for (size_t type = 0; type < kFittedTypes.size(); ++type) combine += at[6 + type];
    }
  }
  double call, sync, step, wake;
  double read = 0, write = 0, update = 0, pass = 0, claim = 0, others = 0, combine = 0;
};

std::vector<double> usage_on(const schedule::StepList& list, Element element, int processors) {
  return usage_of(list, element, assumed_costs(list.ranks, processors));
}

TEST(Usage, ABarrierMeetsOnceAndMovesNothing) {
  const Sums sums(usage_on(schedule::barrier(4), 1, 2));
  EXPECT_EQ(sums.call, 1);
  EXPECT_EQ(sums.sync, 1);
  EXPECT_EQ(sums.step + sums.wake + sums.read + sums.write + sums.update, 0);
}

TEST(Usage, DirectAllReduceUpdatesItsSliceOfEveryTensor) {
  const int64_t count = 1 << 20;
  const Sums sums(usage_on(schedule::all_reduce_direct(2, count), DType::kFloat32, 2));
  EXPECT_EQ(sums.sync, 2);
  EXPECT_EQ(sums.step, 1);
  EXPECT_NEAR(sums.update, 4.0 * count, 1);  // half of each of two tensors
  EXPECT_NEAR(sums.combine, 2.0 * count, 1);
  EXPECT_EQ(sums.read + sums.write + sums.pass, 0);
  EXPECT_NEAR(sums.others, 8.0 * count, 1);  // the other rank reads and writes as much
}

TEST(Usage, ACopyReadsOnceAndLeavesItsSourceAlone) {
  const Sums sums(usage_on(schedule::broadcast_direct(2, 1 << 20, 0), 4, 2));
  EXPECT_NEAR(sums.read, 2.0 * (1 << 20), 1);   // half of the root's tensor
  EXPECT_NEAR(sums.write, 2.0 * (1 << 20), 1);  // to the other one's
  EXPECT_EQ(sums.update, 0);
}

TEST(Usage, MoreRanksThanProcessorsShareThem) {
  const int64_t count = 1 << 20;
  const auto list = schedule::all_reduce_direct(4, count);
  EXPECT_NEAR(Sums(usage_on(list, 4, 4)).update, 4.0 * count, 1);
  EXPECT_NEAR(Sums(usage_on(list, 4, 2)).update, 8.0 * count, 1);
  EXPECT_NEAR(Sums(usage_on(list, 4, 1)).update, 16.0 * count, 1);
  EXPECT_EQ(Sums(usage_on(list, 4, 1)).others, 0);
}

TEST(Usage, WhatFollowsTheLastMeetingRunsWithTheNextCall) {
  // The root fills its slot while the other empties the one before: one of the two counts.
  const Sums sums(usage_on(schedule::broadcast_flat(2, 1000, 0), 4, 2));
  EXPECT_EQ(sums.step, 1);
  EXPECT_EQ(sums.read, 4000);
  EXPECT_EQ(sums.wake, 0);
}

TEST(Usage, ASlotThatAnotherRankWroteIsPassed) {
  const Sums sums(usage_on(schedule::all_reduce_flat(2, 1000), 4, 2));
  EXPECT_EQ(sums.pass, 4000);
  EXPECT_EQ(sums.claim, 4000);
  EXPECT_EQ(sums.read, 3 * 4000);   // the tensor, then both slots
  EXPECT_EQ(sums.write, 2 * 4000);  // the slot, then the tensor
}

TEST(Usage, ARankThatOnlyWaitsIsWokenUp) {
  auto list = schedule::broadcast_direct(2, 1 << 20, 0);
  EXPECT_EQ(Sums(usage_on(list, 4, 2)).wake, 0);
  std::erase_if(list.per_rank[1], [](const schedule::Step& step) { return step.count > 0; });
  EXPECT_EQ(Sums(usage_on(list, 4, 2)).wake, 1);
}

TEST(Usage, FallsBetweenTheLevelsAroundTheWorkingSet) {
  const auto level_of = [](int64_t count) {
    const auto usage = usage_on(schedule::all_reduce_direct(2, count), 4, 2);
    std::vector<double> updates;
    for (size_t level = 0; level < kLevelBytes.size(); ++level) {
      updates.push_back(usage[kCommonUnknowns + level * kLevelUnknowns + 2]);
    }
    return updates;
  };
  EXPECT_GT(level_of(1)[0], 0);                                // below the first
  EXPECT_EQ(level_of((1 << 20) / 8)[2], 4.0 * (1 << 20) / 8);  // at the third
  EXPECT_GT(level_of(int64_t{1} << 26).back(), 0);             // beyond the last
  const auto between = level_of((3 << 20) / 16);               // 1.5 MiB, between 1 and 2
  EXPECT_GT(between[2], 0);
  EXPECT_GT(between[3], between[2]);
}

}  // namespace
}  // namespace hanji::cost
