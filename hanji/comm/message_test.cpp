#include "hanji/comm/message.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <thread>
#include <vector>

#include "hanji/comm/all_reduce.h"
#include "hanji/comm/barrier.h"
#include "hanji/comm/internal/test_ranks.h"
#include "hanji/trace/recorder.h"

namespace hanji::comm {
namespace {

using internal::place;
using internal::refusal;
using internal::run_ranks;
using internal::Where;
using testing::AllOf;
using testing::HasSubstr;

at::Tensor counted(int64_t count, int start, c10::ScalarType type = at::kFloat) {
  return (at::arange(count, at::kLong).remainder(50) + start).to(type);
}

TEST(Message, ArrivesWhereverItsEndsLie) {
  for (const int ranks : {2, 3, 5}) {
    run_ranks(ranks, [](const Group& group) {
      const int n = group.size();
      const int next = (group.rank() + 1) % n;
      const int before = (group.rank() + n - 1) % n;
      for (const int64_t count : {0, 1, 7, 400001}) {
        for (const Where where : {Where::kHeap, Where::kPrivate, Where::kMixed}) {
          const at::Tensor mine = place(counted(count, group.rank()), where, group);
          at::Tensor theirs = place(at::zeros({count}), where, group);
          Work sent = send(mine, next, group);
          recv(theirs, before, group).wait();
          sent.wait();
          EXPECT_TRUE(at::equal(theirs, counted(count, before)));
        }
      }
    });
  }
}

TEST(Message, MovesEveryTypeThatHasBytes) {
  run_ranks(2, [](const Group& group) {
    for (const c10::ScalarType type :
         {at::kDouble, at::kFloat, at::kBFloat16, at::kHalf, at::kInt, at::kLong, at::kByte,
          at::kBool, at::kShort, at::kComplexFloat}) {
      at::Tensor tensor = counted(33, group.rank(), type);
      if (group.rank() == 0) send(tensor, 1, group).wait();
      if (group.rank() == 1) recv(tensor, 0, group).wait();
      EXPECT_TRUE(at::equal(tensor, counted(33, 0, type))) << type;
    }
  });
}

/// Rank 0 sends more than staging holds and then receives by `receive`, what rank 1 sends last.
void expect_sends_while_it_receives(const std::function<void(at::Tensor&, const Group&)>& receive) {
  run_ranks(2, [&](const Group& group) {
    at::Tensor tensor = counted(5000, 0);
    if (group.rank() == 0) {
      std::vector<Work> sent;
      for (int i = 0; i < 3; ++i) sent.push_back(send(tensor, 1, group));
      at::Tensor theirs = at::zeros({5000});
      receive(theirs, group);
      for (Work& work : sent) work.wait();
    } else {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      for (int i = 0; i < 3; ++i) recv(tensor, 0, group).wait();
      send(tensor, 0, group).wait();
    }
  });
}

TEST(Message, IsTakenWhileItsSenderMakesNoCall) {
  constexpr int kMessages = 7;
  std::atomic<int> taken = 0;
  GroupOptions options;
  options.deadline = std::chrono::seconds(5);
  run_ranks(
      2,
      [&](const Group& group) {
        std::vector<Work> sent;
        for (int i = 0; i < kMessages; ++i) {
          at::Tensor tensor =
              place(counted(400001, group.rank() == 0 ? i : -1), Where::kHeap, group);
          if (group.rank() == 0) {
            sent.push_back(send(tensor, 1, group));
            continue;
          }
          recv(tensor, 0, group).wait();
          EXPECT_TRUE(at::equal(tensor, counted(400001, i)));
          ++taken;
        }
        const auto late = std::chrono::steady_clock::now() + std::chrono::seconds(20);
        while (taken < kMessages && std::chrono::steady_clock::now() < late) {
          std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
        EXPECT_EQ(taken, kMessages);
        for (Work& work : sent) work.wait();
      },
      options);
}

TEST(Message, GoesOnWhileItsSenderLooksForOneFromAnybody) {
  expect_sends_while_it_receives([](at::Tensor& tensor, const Group& group) {
    EXPECT_EQ(recv_any(tensor, group, {.deadline = std::chrono::seconds(10)}), 1);
  });
}

TEST(Message, GoesOnWhileItsSenderLooksWhetherAnotherIsDone) {
  expect_sends_while_it_receives([](at::Tensor& tensor, const Group& group) {
    Work received = recv(tensor, 1, group);
    while (!received.done()) std::this_thread::yield();
  });
}

TEST(Message, IsTakenFromWhoeverSendsIt) {
  run_ranks(4, [](const Group& group) {
    if (group.rank() != 2) {
      for (int turn = 0; turn < 3; ++turn) send(counted(5, group.rank()), 2, group).wait();
      return;
    }
    std::vector<int> taken(4);
    for (int turn = 0; turn < 9; ++turn) {
      at::Tensor tensor = at::zeros({5});
      const int from = recv_any(tensor, group);
      EXPECT_TRUE(at::equal(tensor, counted(5, from)));
      ++taken[from];
    }
    EXPECT_EQ(taken, (std::vector<int>{3, 3, 0, 3}));
    at::Tensor tensor = at::zeros({5});
    EXPECT_EQ(recv_if_sent(tensor, group).from, -1);
  });
}

TEST(Message, FromNobodyIsATimeoutThatSaysSo) {
  GroupOptions options;
  options.deadline = std::chrono::milliseconds(50);
  run_ranks(
      2,
      [](const Group& group) {
        at::Tensor tensor = at::zeros({1});
        if (group.rank() == 1) return;
        EXPECT_THAT([&] { recv_any(tensor, group); },
                    testing::ThrowsMessage<Error>(HasSubstr("sent anything to rank 0")));
      },
      options);
}

TEST(Message, KeepsItsOrderAmongManyAndBesideCollectives) {
  run_ranks(2, [](const Group& group) {
    std::vector<at::Tensor> tensors;
    std::vector<Work> works;
    at::Tensor sum = at::ones({1000});
    for (int i = 0; i < 40; ++i) {
      tensors.push_back(at::full({100 + i}, group.rank() == 0 ? i : -1));
      const CallOptions options{.tag = static_cast<uint64_t>(i)};
      // The ends come to the collective at different places among their messages.
      if (i == (group.rank() == 0 ? 5 : 30)) works.push_back(all_reduce(sum, group));
      works.push_back(group.rank() == 0 ? send(tensors[i], 1, group, options)
                                        : recv(tensors[i], 0, group, options));
    }
    for (Work& work : works) work.wait();
    for (int i = 0; i < 40; ++i) EXPECT_TRUE(at::equal(tensors[i], at::full({100 + i}, i)));
    EXPECT_EQ(sum.sum().item<float>(), 2000);
  });
}

TEST(Message, BetweenTwoRanksIsOneSequenceInAllTheirGroups) {
  run_ranks(3, [](const Group& group) {
    if (group.rank() == 2) {
      (void)group.subgroup({2}, "rest");
      barrier(group);
      return;
    }
    const Group pair = group.subgroup({1, 0}, "pair");  // where rank 0 is rank 1
    at::Tensor first = at::full({10}, group.rank());
    at::Tensor second = at::full({10}, group.rank() + 10);
    if (group.rank() == 0) {
      send(first, 1, group).wait();
      send(second, 0, pair).wait();
    } else {
      recv(first, 1, pair).wait();
      recv(second, 0, group).wait();
    }
    EXPECT_EQ(first.sum().item<int64_t>(), 0);
    EXPECT_EQ(second.sum().item<int64_t>(), 100);
    barrier(group);
  });
}

TEST(Message, CostsItsReceiverTheCopyAndTheWaitForItsSender) {
  constexpr auto kLate = std::chrono::milliseconds(100);
  const auto segment = internal::make_segment(2);
  test::run_threads(2, [&](int rank) {
    auto recorder = trace::Recorder::format(segment->trace_memory(rank), rank, 2, 16);
    GroupOptions options;
    options.recorder = &recorder;
    const Group group = Group::over_shm(segment, 0, {0, 1}, rank, options);
    const Group pair = group.subgroup({1, 0}, "pair");
    at::Tensor tensor = group.heap().zeros({1 << 20}, at::kFloat, "test");
    barrier(group);
    if (rank == 0) {
      std::this_thread::sleep_for(kLate);
      send(tensor, 0, pair).wait();
    } else {
      recv(tensor, 0, group).wait();
    }
    const auto times = message_times(group);
    ASSERT_TRUE(times);
    EXPECT_EQ(times->exposed_ns, times->transfer_ns);
    if (rank == 0) return;
    EXPECT_GT(times->transfer_ns, 0);
    EXPECT_GE(times->skew_ns, std::chrono::nanoseconds(kLate).count() / 2);
    EXPECT_LT(pair.stats().times->skew_ns, times->skew_ns) << "or a message would count twice";
  });
}

TEST(Message, WithoutARecorderTellsNoTimes) {
  run_ranks(2, [](const Group& group) {
    at::Tensor tensor = counted(10, 0);
    if (group.rank() == 0) send(tensor, 1, group).wait();
    if (group.rank() == 1) recv(tensor, 0, group).wait();
    EXPECT_FALSE(message_times(group));
  });
}

TEST(Message, IsMovedByTheGroupsThread) {
  GroupOptions options;
  options.progress = Progress::kThread;
  run_ranks(
      2,
      [](const Group& group) {
        at::Tensor tensor = at::full({1 << 20}, group.rank());
        Work work = group.rank() == 0 ? send(tensor, 1, group) : recv(tensor, 0, group);
        while (!work.done()) std::this_thread::yield();
        EXPECT_EQ(tensor.sum().item<int64_t>(), 0);
      },
      options);
}

TEST(Message, DisagreementIsNamedOnBothEnds) {
  run_ranks(2, [](const Group& group) {
    at::Tensor tensor = at::full({100}, group.rank());
    const auto call = [&] {
      if (group.rank() == 0) send(tensor, 1, group, {.tag = 7}).wait();
      if (group.rank() == 1) recv(tensor, 0, group, {.tag = 8}).wait();
    };
    EXPECT_THAT(
        refusal(call),
        AllOf(HasSubstr("mismatch: "), HasSubstr("message 1 from rank 0 to rank 1"),
              HasSubstr("rank 0 calls send(int64, 100 elements, tag 7) at message_test.cpp:"),
              HasSubstr("rank 1 calls recv("), HasSubstr("the tag is 8 there and 7 here")));
    EXPECT_EQ(tensor[99].item<int64_t>(), group.rank());
    barrier(group);  // the group's own calls go on
  });
}

TEST(Message, IsRefusedToOneselfAndToStrangers) {
  const Group group = Group::alone();
  at::Tensor tensor = at::ones({4});
  EXPECT_THAT(refusal([&] { send(tensor, 0, group).wait(); }),
              HasSubstr("invalid_argument: send: rank 0 is not another rank of group world of 1"));
  EXPECT_THAT(refusal([&] { recv(tensor, 1, group).wait(); }), HasSubstr("recv: rank 1"));
  EXPECT_THAT(refusal([&] { send(at::Tensor(), 0, group).wait(); }), HasSubstr("undefined"));
}

}  // namespace
}  // namespace hanji::comm
