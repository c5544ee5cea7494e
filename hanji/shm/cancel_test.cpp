// A call that is given up: by its own deadline, or by a rank that cancels it for all.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "hanji/base/clock.h"
#include "hanji/schedule/all_reduce.h"
#include "hanji/schedule/barrier.h"
#include "hanji/shm/call_site.h"
#include "hanji/test/run_group.h"

namespace hanji::shm {
namespace {

using namespace std::chrono_literals;
using test::call_of;
using test::Member;
using test::run_group;
using test::share;
using testing::AllOf;
using testing::HasSubstr;

TEST(CallDeadline, EndsTheWaitBeforeThatOfTheEngine) {
  run_group(3, [](Member& member) {
    if (member.rank == 1) return;
    Call call = call_of(share(schedule::barrier(3)));
    call.deadline = 100ms;
    const int64_t start = base::now_ns();
    const Status status = member.run(call);
    EXPECT_LT(base::now_ns() - start, 60'000'000'000);
    EXPECT_EQ(status.code(), Code::kTimeout);
    EXPECT_THAT(status.message(), HasSubstr("absent rank 1"));
  });
}

TEST(CallDeadline, OfALaterCallHoldsWhileAnEarlierOneWaits) {
  run_group(2, [](Member& member) {
    if (member.rank == 1) return;
    Call call = call_of(share(schedule::barrier(2)));
    ASSERT_TRUE(member.engine.submit(call).ok());
    call.deadline = 100ms;
    const Status status = member.run(call);
    EXPECT_EQ(status.code(), Code::kTimeout);
    EXPECT_THAT(status.message(), AllOf(HasSubstr("operation 1"), HasSubstr("absent rank 1")));
  });
}

TEST(CallDeadline, HasPassedForARankThatComesHalfOfItLate) {
  run_group(2, [](Member& member) {
    Call call = call_of(share(schedule::barrier(2)));
    if (member.rank == 1) {
      std::this_thread::sleep_for(1500ms);
      (void)member.run(call);  // rank 0 has given up
      return;
    }
    call.deadline = 1s;
    EXPECT_EQ(member.run(call).code(), Code::kTimeout);
  });
}

TEST(CallDeadline, MayBeLongerThanThatOfTheEngine) {
  EngineOptions options;
  options.deadline = 20ms;
  run_group(
      2,
      [](Member& member) {
        if (member.rank == 1) std::this_thread::sleep_for(200ms);
        Call call = call_of(share(schedule::barrier(2)));
        call.deadline = 60s;
        EXPECT_TRUE(member.run(call).ok());
      },
      options);
}

// Rank 2 does not come until the others have been told; nobody waits for the deadline of 300 s.
TEST(Cancel, EndsTheCallAndTheGroupOnEveryRank) {
  std::atomic<int> begun = 0;
  std::atomic<int> ended = 0;
  run_group(3, [&](Member& member) {
    Call call = call_of(share(schedule::all_reduce_direct(3, 1000)));
    call.input = call.output = member.allocate<float>(1000);
    call.call_site = member.segment->call_sites().intern(member.rank, "step.cpp:9");
    Status status;
    if (member.rank == 2) {
      while (ended.load() < 2) std::this_thread::sleep_for(1ms);
      status = member.engine.submit(call).status();
    } else {
      const uint64_t ticket = member.engine.submit(call).or_throw();
      ++begun;
      while (begun.load() < 2) std::this_thread::sleep_for(1ms);
      EXPECT_EQ(member.rank == 1 && member.engine.cancel(ticket), member.rank == 1);
      status = member.engine.wait(ticket);
      ++ended;
    }
    EXPECT_EQ(status.code(), Code::kCancelled);
    EXPECT_THAT(status.message(), HasSubstr("operation 1 of group 0: rank 1 cancelled it"));
    if (member.rank == 0) {
      EXPECT_THAT(status.message(), HasSubstr("all_reduce(sum, float32, 1000 elements) at step"));
    }
    EXPECT_EQ(member.engine.submit(call).status().code(), Code::kCancelled);
  });
}

TEST(Cancel, ComesFromAnotherThreadThanTheOneThatWaits) {
  run_group(2, [](Member& member) {
    if (member.rank == 1) return;
    const uint64_t ticket = member.engine.submit(call_of(share(schedule::barrier(2)))).or_throw();
    std::jthread other([&] {
      std::this_thread::sleep_for(50ms);
      EXPECT_TRUE(member.engine.cancel(ticket));
    });
    EXPECT_EQ(member.engine.wait(ticket).code(), Code::kCancelled);
  });
}

TEST(Cancel, OfACompleteCallDoesNothing) {
  run_group(2, [](Member& member) {
    const Call call = call_of(share(schedule::barrier(2)));
    const uint64_t ticket = member.engine.submit(call).or_throw();
    ASSERT_TRUE(member.engine.wait(ticket).ok());
    EXPECT_FALSE(member.engine.cancel(ticket));
    EXPECT_TRUE(member.run(call).ok());
  });
}

TEST(ArrivedAndDelivered, NameTheMembersThatHaveComeThatFar) {
  std::atomic<bool> seen = false;
  run_group(3, [&](Member& member) {
    const Call call = call_of(share(schedule::barrier(3)));
    if (member.rank == 2) {
      while (!seen.load()) std::this_thread::sleep_for(1ms);
    }
    const uint64_t ticket = member.engine.submit(call).or_throw();
    if (member.rank == 0) {
      while (member.engine.arrived(ticket) != 0b011) std::this_thread::sleep_for(1ms);
      EXPECT_EQ(member.engine.delivered(ticket), 0u);
      seen = true;
    }
    ASSERT_TRUE(member.engine.wait(ticket).ok());
    EXPECT_EQ(member.engine.arrived(ticket), 0b111u);
    EXPECT_EQ(member.engine.delivered(ticket) >> member.rank & 1, 1u);
    const auto limit = base::Deadline::after(30s);
    while (member.engine.delivered(ticket) != 0b111 && !limit.passed()) {
      std::this_thread::sleep_for(1ms);
    }
    EXPECT_EQ(member.engine.delivered(ticket), 0b111u);
  });
}

}  // namespace
}  // namespace hanji::shm
