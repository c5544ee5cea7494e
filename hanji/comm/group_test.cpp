#include "hanji/comm/group.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <array>
#include <atomic>
#include <chrono>
#include <iostream>
#include <thread>

#include "hanji/comm/all_reduce.h"
#include "hanji/comm/barrier.h"
#include "hanji/comm/before_call.h"
#include "hanji/comm/internal/test_ranks.h"
#include "hanji/comm/regroup.h"
#include "hanji/comm/stats.h"
#include "hanji/shm/heap.h"
#include "hanji/trace/recorder.h"

namespace hanji::comm {
namespace {

using internal::refusal;
using internal::run_ranks;
using testing::AllOf;
using testing::HasSubstr;
using namespace std::chrono_literals;

TEST(Group, RegroupsTheSameRanksWithOtherOptions) {
  run_ranks(3, [](const Group& group) {
    GroupOptions options = group.options();
    options.name = "followed";
    options.deadline = 7s;
    options.bits = Bits::kFast;
    const Group again = regroup(group, options);
    EXPECT_EQ(again.rank(), group.rank());
    EXPECT_EQ(again.size(), 3);
    EXPECT_EQ(again.name(), "followed");
    EXPECT_EQ(again.options().deadline, 7s);
    EXPECT_EQ(again.options().bits, Bits::kFast);
    EXPECT_EQ(group.options().name, "world");
    EXPECT_EQ(&again.heap().raw(), &group.heap().raw());
    at::Tensor tensor = at::full({5}, group.rank());
    all_reduce(tensor, again).wait();
    EXPECT_EQ(tensor[4].item<int>(), 3);
  });
}

TEST(Group, AMismatchIsNamedOnEveryRankAndIsFinal) {
  run_ranks(3, [](const Group& group) {
    at::Tensor tensor = at::ones({group.rank() == 1 ? 8 : 7});
    const auto call = [&] { all_reduce(tensor, group).wait(); };
    EXPECT_THAT(refusal(call), AllOf(HasSubstr("mismatch: "), HasSubstr("group world"),
                                     HasSubstr("rank 1"), HasSubstr("group_test.cpp:")));
    EXPECT_THAT(refusal(call), HasSubstr("mismatch: "));
    EXPECT_TRUE(at::equal(tensor, at::ones_like(tensor))) << "a byte was written";
  });
}

TEST(Group, TagsTellEqualCallsApart) {
  run_ranks(2, [](const Group& group) {
    at::Tensor tensor = at::ones({7});
    const auto tag = static_cast<uint64_t>(group.rank());
    EXPECT_THAT(refusal([&] { all_reduce(tensor, group, {.tag = tag}).wait(); }),
                HasSubstr("mismatch: "));
  });
}

TEST(Group, ADeadlineNamesTheAbsentRank) {
  GroupOptions options;
  options.deadline = 300ms;
  for (const Progress progress : {Progress::kCaller, Progress::kThread}) {
    options.progress = progress;
    std::atomic<bool> over{false};
    run_ranks(
        2,
        [&over](const Group& group) {
          if (group.rank() == 1) {
            over.wait(false);
            return;
          }
          at::Tensor tensor = at::ones({4});
          EXPECT_THAT(refusal([&] { all_reduce(tensor, group).wait(); }),
                      AllOf(HasSubstr("timeout: "), HasSubstr("rank 1")));
          over = true;
          over.notify_all();
        },
        options);
  }
}

TEST(Group, AnUnwaitedCallKeepsItsTensorsUntilItIsDone) {
  run_ranks(2, [](const Group& group) {
    const auto used = [&group] { return group.heap().raw().used_bytes(group.rank()); };
    {
      at::Tensor tensor = group.heap().zeros({1 << 20}, at::kFloat, "test");
      const Work dropped = all_reduce(tensor, group);
    }
    barrier(group);
    EXPECT_EQ(used(), 0u);
    EXPECT_EQ(group.stats().operations, 2);
  });
}

TEST(Group, CallsOfSeveralGroupsMayBeWaitedForInAnyOrder) {
  run_ranks(2, [](const Group& world) {
    const Group first = world.subgroup({0, 1}, "first");
    const Group second = world.subgroup({0, 1}, "second");
    at::Tensor a = at::ones({3 << 20});
    at::Tensor b = at::ones({3 << 20});
    Work in_first = all_reduce(a, first);
    Work in_second = all_reduce(b, second);
    (world.rank() == 0 ? in_first : in_second).wait();
    (world.rank() == 0 ? in_second : in_first).wait();
    EXPECT_EQ(a.sum().item<double>() + b.sum().item<double>(), 12.0 * (1 << 20));
  });
}

TEST(Group, SubgroupsReduceAmongTheirMembersOnTheSameHeap) {
  run_ranks(3, [](const Group& world) {
    const std::vector<int> members = world.rank() == 1 ? std::vector{1} : std::vector{2, 0};
    const Group part = world.subgroup(members, "part");
    EXPECT_EQ(part.size(), static_cast<int>(members.size()));
    EXPECT_EQ(part.rank(), world.rank() == 0 ? 1 : 0);
    at::Tensor tensor = part.heap().zeros({1}, at::kInt, "test");
    tensor.fill_(world.rank() + 1);
    all_reduce(tensor, part).wait();
    EXPECT_EQ(tensor.item<int>(), world.rank() == 1 ? 2 : 4);
    EXPECT_TRUE(world.heap().contains(tensor));
  });
}

TEST(Group, SubgroupsWhoseListsDifferAreRefusedEverywhere) {
  run_ranks(3, [](const Group& world) {
    const std::vector<int> members = world.rank() == 2 ? std::vector{1, 2} : std::vector{0, 1};
    if (world.rank() == 2) {
      EXPECT_THAT(refusal([&] {
                    world.subgroup({0, 1}, "part");
                  }),
                  HasSubstr("invalid_argument: "));
    }
    EXPECT_THAT(refusal([&] { world.subgroup(members, "part"); }),
                AllOf(HasSubstr("mismatch: "), HasSubstr("rank 2")));
  });
}

TEST(Group, AGroupWithAThreadCompletesUnwaited) {
  GroupOptions options;
  options.progress = Progress::kThread;
  run_ranks(
      2,
      [](const Group& group) {
        at::Tensor tensor = at::ones({1 << 20});
        std::atomic<bool> told{false};
        all_reduce(tensor, group).then([&told](const Status& status) {
          EXPECT_TRUE(status.ok());
          told = true;
          told.notify_all();
        });
        told.wait(false);
        EXPECT_EQ(tensor[0].item<float>(), 2);
      },
      options);
}

/// Two ranks and an all_reduce of 8 MiB, before which rank 1 sleeps.
struct TimedCall {
  std::array<CallTimes, 2> times;
  std::array<int64_t, 2> busy_ns = {};
};
TimedCall timed_all_reduce(std::chrono::milliseconds sleep) {
  const auto segment = internal::make_segment(2);
  TimedCall found;
  test::run_threads(2, [&](int rank) {
    auto recorder = trace::Recorder::format(segment->trace_memory(rank), rank, 2, 16);
    GroupOptions options;
    options.recorder = &recorder;
    const Group group = Group::over_shm(segment, 0, {0, 1}, rank, options);
    bool sleeps = false;
    if (rank == 1) before_call(group, [&] { std::this_thread::sleep_for(sleeps ? sleep : 0ms); });
    at::Tensor tensor = group.heap().zeros({2 << 20}, at::kFloat, "test");
    all_reduce(tensor, group).wait();  // touches the pages
    const Stats before = group.stats();
    sleeps = true;
    all_reduce(tensor, group).wait();
    const Stats after = group.stats();
    found.busy_ns[rank] = after.busy_ns - before.busy_ns;
    found.times[rank] = {.transfer_ns = after.times->transfer_ns - before.times->transfer_ns,
                         .exposed_ns = after.times->exposed_ns - before.times->exposed_ns,
                         .skew_ns = after.times->skew_ns - before.times->skew_ns};
  });
  return found;
}

// What a rank calls transfer is its own moving and, at each sync, so much of its waiting as a peer
// moved longer: with two ranks never more than both moved together, however long one sleeps.
TEST(Group, ASleepBeforeACallIsSkewOfTheOthersAndNoTransfer) {
  for (const auto sleep : {0ms, 400ms}) {
    const TimedCall call = timed_all_reduce(sleep);
    const int64_t moved_ns = call.busy_ns[0] + call.busy_ns[1];
    for (const int rank : {0, 1}) {
      EXPECT_GE(call.times[rank].transfer_ns, call.busy_ns[rank]);
      EXPECT_LE(call.times[rank].transfer_ns, moved_ns);
      EXPECT_EQ(call.times[rank].exposed_ns, call.times[rank].transfer_ns);
      std::cout << "[ measured ] sleep " << sleep.count() << " ms, rank " << rank << ": transfer "
                << call.times[rank].transfer_ns / 1000 << " us, skew "
                << call.times[rank].skew_ns / 1000 << " us\n";
    }
    if (sleep == 0ms) continue;
    EXPECT_GE(call.times[0].skew_ns, 200'000'000);
    EXPECT_LT(call.times[1].skew_ns, call.times[0].skew_ns);
  }
}

TEST(Group, WithoutARecorderTransferAndSkewAreUnknown) {
  run_ranks(1, [](const Group& group) { EXPECT_FALSE(group.stats().times.has_value()); });
}

TEST(Group, EveryCallLeavesASpan) {
  const auto segment = internal::make_segment(1);
  trace::Recorder recorder = trace::Recorder::format(segment->trace_memory(0), 0, 1, 16);
  GroupOptions options;
  options.recorder = &recorder;
  const Group group = Group::over_shm(segment, 0, {0}, 0, options);
  at::Tensor tensor = at::ones({100});
  all_reduce(tensor, group).wait();
  const auto events = recorder.events();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(recorder.name(events[0].name), "all_reduce");
  EXPECT_EQ(events[0].lane, trace::Lane::kCommunication);
  EXPECT_EQ(events[0].bytes, 400);
  EXPECT_EQ(events[0].group_size, 1);
  EXPECT_EQ(events[0].group, 0);
  EXPECT_EQ(events[0].routine, static_cast<uint8_t>(schedule::Routine::kAllReduce));
  EXPECT_EQ(events[0].op, static_cast<uint8_t>(schedule::ReduceOp::kSum));
  EXPECT_EQ(events[0].counts, schedule::hash_of_counts(100, {}));
  EXPECT_LE(events[0].start_ns, events[0].end_ns);
}

TEST(Group, AloneRunsTheSamePath) {
  const Group group = Group::alone();
  EXPECT_EQ(group.size(), 1);
  EXPECT_EQ(group.engine(), "shm");
  at::Tensor tensor = group.heap().zeros({5}, at::kFloat, "test") + 2;
  all_reduce(tensor, group, {.op = schedule::ReduceOp::kAvg}).wait();
  EXPECT_EQ(tensor.sum().item<float>(), 10);
  EXPECT_EQ(group.sequence(), 1u);
  EXPECT_EQ(group.subgroup({0}, "again").size(), 1);
}

TEST(Group, AloneRefusesAHeapThatOthersShare) {
  EXPECT_THAT(refusal([] { Group::alone(Heap(internal::make_segment(2), 0)); }),
              HasSubstr("invalid_argument: "));
}

TEST(Stats, SumsEveryMemberAndForgetsTimesThatOneGroupDoesNotHave) {
  Stats sum{.operations = 1, .bytes = 2, .wire_bytes = 3, .network_bytes = 4};
  sum.wait_ns = 5;
  sum.busy_ns = 6;
  sum.times = CallTimes{7, 8, 9};
  add(sum, Stats(sum));
  EXPECT_EQ(sum.operations, 2);
  EXPECT_EQ(sum.bytes, 4);
  EXPECT_EQ(sum.wire_bytes, 6);
  EXPECT_EQ(sum.network_bytes, 8);
  EXPECT_EQ(sum.wait_ns, 10);
  EXPECT_EQ(sum.busy_ns, 12);
  EXPECT_EQ(sum.times->transfer_ns, 14);
  EXPECT_EQ(sum.times->exposed_ns, 16);
  EXPECT_EQ(sum.times->skew_ns, 18);
  add(sum, Stats());
  EXPECT_FALSE(sum.times);
}

}  // namespace
}  // namespace hanji::comm
