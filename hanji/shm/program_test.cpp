// The engine runs the list it is given, whatever it says, or refuses it.
#include "hanji/shm/internal/program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hanji/schedule/all_reduce.h"
#include "hanji/schedule/json.h"
#include "hanji/schedule/staging.h"
#include "hanji/test/run_group.h"

namespace hanji::shm {
namespace {

using schedule::Place;
using schedule::Step;
using schedule::StepKind;
using schedule::StepList;
using test::call_of;
using test::Member;
using test::run_group;
using test::share;
using testing::HasSubstr;

constexpr int kProgramRanks = 3;
constexpr int64_t kCount = 200;

// Runs an all_reduce list on rank + 1 in every element; what rank 0 holds afterwards.
std::vector<float> run(const StepList& list) {
  const auto shared = share(list);
  std::vector<float> result;
  run_group(kProgramRanks, [&](Member& member) {
    auto* data = member.allocate<float>(kCount);
    std::fill(data, data + kCount, static_cast<float>(member.rank + 1));
    Call call = call_of(shared);
    call.input = call.output = data;
    base::throw_if_error(member.run(call));
    if (member.rank == 0) result.assign(data, data + kCount);
  });
  return result;
}

Status refusal(const StepList& list) {
  return internal::inspect(share(list), 0, kProgramRanks).status();
}

TEST(Program, AListReadFromJsonRuns) {
  const std::string json = schedule::to_json(schedule::all_reduce_direct(kProgramRanks, kCount));
  const auto list = schedule::from_json(json);
  ASSERT_TRUE(list.ok());
  EXPECT_EQ(run(*list), std::vector<float>(kCount, 6.0f));
}

TEST(Program, AMutatedListChangesTheResult) {
  StepList list = schedule::all_reduce_direct(kProgramRanks, kCount);
  for (auto& steps : list.per_rank) {
    for (Step& step : steps) {
      if (step.kind != StepKind::kReduce) continue;
      step.from.resize(2);  // leaves rank 2 out of the sum
      step.tree = {0, 1, -1};
    }
  }
  EXPECT_EQ(run(list), std::vector<float>(kCount, 3.0f));
}

TEST(Program, ARemovedStepLeavesItsRangeAsItWas) {
  StepList list = schedule::all_reduce_direct(kProgramRanks, kCount);
  ASSERT_EQ(list.per_rank[1].size(), 3u);
  list.per_rank[1].erase(list.per_rank[1].begin() + 1);
  const auto result = run(list);
  EXPECT_EQ(result.front(), 6.0f);
  EXPECT_EQ(result[128], 1.0f);  // slice 1 is [128, 200): 200 / 3, rounded up to 64, is 128
}

TEST(Program, RangesOutsideABufferAreRefused) {
  StepList list = schedule::all_reduce_direct(kProgramRanks, kCount);
  list.per_rank[1][1].to[0].begin += 1000;
  EXPECT_EQ(refusal(list).code(), Code::kInvalidArgument);
}

TEST(Program, UnequalNumbersOfSyncsAreRefused) {
  StepList list = schedule::all_reduce_direct(kProgramRanks, kCount);
  list.per_rank[1].pop_back();
  EXPECT_THAT(refusal(list).message(), HasSubstr("rank 1 has 1 syncs, rank 0 has 2"));
}

TEST(Program, PeersBeforeTheFirstSyncAreRefused) {
  StepList list = schedule::all_reduce_direct(kProgramRanks, kCount);
  std::swap(list.per_rank[1][0], list.per_rank[1][1]);
  EXPECT_THAT(refusal(list).message(), HasSubstr("before the first sync"));
}

TEST(Program, PeersTensorsAfterTheLastSyncAreRefused) {
  StepList list = schedule::all_reduce_direct(kProgramRanks, kCount);
  std::swap(list.per_rank[1][1], list.per_rank[1][2]);
  EXPECT_THAT(refusal(list).message(), HasSubstr("after the last sync"));
}

TEST(Program, WritingTheStagingOfAnotherRankIsRefused) {
  StepList list = schedule::all_reduce_staged(kProgramRanks, kCount, 64);
  for (Step& step : list.per_rank[1]) {
    for (auto& to : step.to) {
      if (to.place == Place::kSlot) to.rank = 2;
    }
  }
  EXPECT_THAT(refusal(list).message(), HasSubstr("staging of rank 2"));
}

TEST(Program, SendsAreRefused) {
  const Status status = refusal(schedule::all_reduce_exchange(kProgramRanks, kCount));
  EXPECT_EQ(status.code(), Code::kUnsupported);
}

TEST(Program, PartialSumsAreRefused) {
  StepList list = schedule::all_reduce_flat(kProgramRanks, kCount);
  list.per_rank[1].back().kind = schedule::StepKind::kCombine;
  const Status status = refusal(list);
  EXPECT_EQ(status.code(), Code::kUnsupported);
  EXPECT_THAT(status.message(), HasSubstr("rank 1 sends or makes partial sums"));
}

TEST(Program, AnotherNumberOfRanksIsRefused) {
  EXPECT_FALSE(refusal(schedule::all_reduce_direct(kProgramRanks + 1, kCount)).ok());
}

TEST(Program, AListForAnotherCallIsRefused) {
  run_group(1, [](Member& member) {
    Call call = call_of(share(schedule::all_reduce_flat(1, 10)));
    float data[11] = {};
    call.input = call.output = data;
    call.count = 11;
    EXPECT_EQ(member.engine.submit(call).status().code(), Code::kInvalidArgument);
    call.count = 10;
    call.output = nullptr;
    EXPECT_THAT(member.engine.submit(call).status().message(), HasSubstr("output is null"));
    call.output = data;
    EXPECT_TRUE(member.run(call).ok());  // a refusal starts nothing and breaks nothing
  });
}

TEST(Program, SlotsLargerThanTheirRoomAreRefused) {
  run_group(2, [](Member& member) {
    constexpr int64_t kTooMany = schedule::kSlotBytes / 4 + 64;
    Call call = call_of(share(schedule::all_reduce_flat(2, kTooMany)));
    call.input = call.output = member.allocate<float>(kTooMany);
    EXPECT_EQ(member.engine.submit(call).status().code(), Code::kUnsupported);
  });
}

TEST(Program, TheFingerprintTellsListsApart) {
  const auto of = [](const StepList& list) {
    return internal::inspect(share(list), 0, kProgramRanks).or_throw().fingerprint;
  };
  StepList list = schedule::all_reduce_direct(kProgramRanks, kCount);
  const uint32_t before = of(list);
  EXPECT_EQ(of(list), before);
  list.per_rank[0][1].from[0].begin = 64;
  EXPECT_NE(of(list), before);
}

TEST(Program, OnlyTheRanksWithOwnBuffersAtStakeAreTouched) {
  const auto direct =
      internal::inspect(share(schedule::all_reduce_direct(kProgramRanks, kCount)), 1, kProgramRanks)
          .or_throw();
  EXPECT_TRUE(direct.touches_peers);
  EXPECT_TRUE(direct.input_touched[0]);
  EXPECT_EQ(direct.num_syncs, 2);
  const auto flat =
      internal::inspect(share(schedule::all_reduce_flat(kProgramRanks, 2)), 1, kProgramRanks)
          .or_throw();
  EXPECT_FALSE(flat.touches_peers);
  EXPECT_TRUE(internal::fits_in_line(flat, schedule::ReduceOp::kSum, 2, 8));
  EXPECT_FALSE(internal::fits_in_line(flat, schedule::ReduceOp::kSum, 2, 32));
}

}  // namespace
}  // namespace hanji::shm
