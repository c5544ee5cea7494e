// What happens when ranks do not come, or go: absences, departures, waits. See also desync_test.cpp.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <time.h>

#include <thread>

#include "hanji/schedule/all_gather.h"
#include "hanji/schedule/all_reduce.h"
#include "hanji/schedule/barrier.h"
#include "hanji/shm/call_site.h"
#include "hanji/shm/internal/flag_line.h"
#include "hanji/test/run_group.h"

namespace hanji::shm {
namespace {

using namespace std::chrono_literals;
using schedule::ReduceOp;
using schedule::Routine;
using test::call_of;
using test::Member;
using test::run_group;
using test::share;
using testing::AllOf;
using testing::HasSubstr;

TEST(Oversubscribed, WhereThreadsOfAllRanksHaveNotAProcessorEach) {
  const auto segment = test::make_segment(2);
  int group = 0;
  const auto is_so = [&](int processors, int threads) {
    const EngineOptions options{.usable_processors = processors, .threads_per_rank = threads};
    return Engine::create(segment, group++, {0, 1}, 0, options).or_throw()->oversubscribed();
  };
  EXPECT_FALSE(is_so(2, 1));
  EXPECT_TRUE(is_so(1, 1));
  EXPECT_TRUE(is_so(2, 2));
  EXPECT_TRUE(is_so(3, 2));
  EXPECT_FALSE(is_so(4, 2));
}

TEST(Deadline, NamesTheAbsentRankAndItsLastCall) {
  EngineOptions options;
  options.deadline = 100ms;
  run_group(
      3,
      [&](Member& member) {
        const auto list = share(schedule::barrier(3));
        Call call = call_of(list);
        call.call_site = member.segment->call_sites().intern(member.rank, "loop.cpp:5");
        ASSERT_TRUE(member.run(call).ok());
        if (member.rank == 1) return;
        const Status status = member.run(call);
        ASSERT_EQ(status.code(), Code::kTimeout);
        EXPECT_THAT(status.message(),
                    AllOf(HasSubstr("operation 2 of group 0"), HasSubstr("absent rank 1"),
                          HasSubstr("last call here was operation 1, barrier() at loop.cpp:5"),
                          HasSubstr("not waiting")));
        EXPECT_EQ(status.message().find("absent rank 0"), std::string::npos);
        EXPECT_EQ(status.message().find("absent rank 2"), std::string::npos);
      },
      options);
}

TEST(Deadline, SaysInWhichGroupTheAbsentRankWaits) {
  const auto segment = test::make_segment(2);
  const auto list = share(schedule::barrier(2));
  test::run_threads(2, [&](int rank) {
    EngineOptions options;
    options.deadline = rank == 0 ? 200ms : 5s;
    auto engine = Engine::create(segment, 3 + rank, {0, 1}, rank, options).or_throw();
    const uint64_t ticket = engine->submit(call_of(list)).or_throw();
    if (rank == 1) {
      // Waits in the wrong group until rank 0 ends the job.
      EXPECT_EQ(engine->wait(ticket).code(), Code::kTimeout);
      return;
    }
    const Status status = engine->wait(ticket);
    EXPECT_THAT(status.message(), HasSubstr("waits in operation 1 of group 4"));
    segment->abort(rank, status.code(), status.message());
  });
}

// Rank 0 waits for rank 1, which waits for rank 2.
struct Chain {
  std::chrono::milliseconds deadline = 5s;  // of rank 1
  bool gave_up = false;                     // rank 1 has, before rank 0 asks
  bool begins = false;                      // rank 2 stops within the call that rank 1 is in
};

// What rank 0 says.
std::string verdict_on(const Chain& chain) {
  const auto segment = test::make_segment(3);
  const auto list = share(schedule::all_reduce_direct(2, 100));
  std::string message;
  std::atomic<bool> is_over = false, has_waited = false, has_begun = !chain.begins;
  test::run_threads(3, [&](int rank) {
    const auto join = [&](int group, std::vector<int> members, std::chrono::milliseconds limit) {
      EngineOptions options;
      options.deadline = limit;
      return Engine::create(segment, group, std::move(members), rank, options).or_throw();
    };
    Heap heap(segment, rank);
    Call call = call_of(list);
    call.input = call.output = heap.allocate(400, "test").or_throw().data;
    if (rank == 2) {
      const auto stopped = join(1, {1, 2}, 5s);
      if (chain.begins) (void)stopped->submit(call).or_throw();
      has_begun = true;
      while (!is_over) std::this_thread::sleep_for(1ms);
      return;
    }
    const auto engine = rank == 0 ? join(0, {0, 1}, 300ms) : join(1, {1, 2}, chain.deadline);
    while (chain.gave_up && rank == 0 && !has_waited) std::this_thread::sleep_for(1ms);
    while (!has_begun) std::this_thread::sleep_for(1ms);
    const Status status = engine->wait(engine->submit(call).or_throw());
    EXPECT_EQ(status.code(), Code::kTimeout);
    if (rank == 1) has_waited = true;
    if (rank == 1) return;
    message = status.message();
    segment->abort(rank, status.code(), status.message());
    is_over = true;
  });
  return message;
}

TEST(Deadline, FollowsWaitsToTheRankThatDoesNotWait) {
  EXPECT_THAT(verdict_on({}),
              AllOf(HasSubstr("absent rank 1: "), HasSubstr("waits in operation 1 of group 1 for "),
                    HasSubstr("rank 2 of the host): "), HasSubstr("not waiting for anybody")));
}

TEST(Deadline, FollowsWaitsToTheRankThatStoppedWithinACall) {
  EXPECT_THAT(
      verdict_on({.begins = true}),
      AllOf(HasSubstr("absent rank 1: "), HasSubstr("waits in operation 1 of group 1 for "),
            HasSubstr("rank 2 of the host): its last call here was operation 1, all_reduce"),
            HasSubstr("not waiting for anybody")));
}

TEST(Deadline, FollowsTheWaitOfARankThatHasJustGivenUp) {
  EXPECT_THAT(
      verdict_on({.deadline = 50ms, .gave_up = true}),
      AllOf(HasSubstr("absent rank 1: "), HasSubstr("gave up in operation 1 of group 1 for "),
            HasSubstr("rank 2 of the host): "), HasSubstr("not waiting for anybody")));
}

TEST(Deadline, ALateRankIsToldThatItsPeersGaveUp) {
  EngineOptions options;
  options.deadline = 50ms;
  run_group(
      2,
      [&](Member& member) {
        const auto list = share(schedule::all_reduce_direct(2, 1000));
        if (member.rank == 1) std::this_thread::sleep_for(300ms);
        Call call = call_of(list);
        call.input = call.output = member.allocate<float>(1000);
        const Status status = member.run(call);
        EXPECT_EQ(status.code(), Code::kTimeout);
        if (member.rank == 1) {
          EXPECT_THAT(status.message(), HasSubstr("rank 0 gave up"));
        }
      },
      options);
}

TEST(Departure, IsToldToWhoeverStillWaits) {
  run_group(2, [&](Member& member) {
    if (member.rank == 1) {
      std::this_thread::sleep_for(50ms);
      member.segment->leave(1);
      return;
    }
    const Status status = member.run(call_of(share(schedule::barrier(2))));
    EXPECT_EQ(status.code(), Code::kPeerLost);
    EXPECT_THAT(status.message(), HasSubstr("rank 1 left"));
  });
}

TEST(Abort, EndsEveryWaitWithItsText) {
  run_group(3, [&](Member& member) {
    if (member.rank == 1) {
      std::this_thread::sleep_for(50ms);
      EXPECT_TRUE(member.segment->abort(1, Code::kInternal, "rank 1 threw: no such file"));
      EXPECT_FALSE(member.segment->abort(1, Code::kTimeout, "second"));
      return;
    }
    const Status status = member.run(call_of(share(schedule::barrier(3))));
    EXPECT_EQ(status.code(), Code::kInternal);
    EXPECT_EQ(status.message(), "rank 1 threw: no such file");
  });
}

TEST(Waiting, SubmitAndAdvanceNeverBlock) {
  run_group(2, [&](Member& member) {
    const auto list = share(schedule::all_reduce_direct(2, 100));
    Call call = call_of(list);
    call.input = call.output = member.allocate<float>(100);
    if (member.rank == 1) std::this_thread::sleep_for(100ms);
    const uint64_t ticket = member.engine.submit(call).or_throw();
    if (member.rank == 0) {
      for (int i = 0; i < 1000; ++i) ASSERT_TRUE(member.engine.advance().ok());
    }
    EXPECT_TRUE(member.engine.wait(ticket).ok());
    EXPECT_TRUE(member.engine.done(ticket));
  });
}

TEST(Waiting, OneAdvanceDoesABoundedPieceOfWork) {
  constexpr int64_t kCount = int64_t{8} << 20;  // 32 MiB are read, 32 MiB written, 4 MiB at a time
  schedule::StepList list = schedule::all_gather_direct(1, kCount);
  const auto shared = share(list);
  run_group(1, [&](Member& member) {
    Call call = call_of(shared);
    call.input = member.allocate<float>(kCount);
    call.output = member.allocate<float>(kCount);
    const uint64_t ticket = member.engine.submit(call).or_throw();
    int advances = 1;
    for (; !member.engine.done(ticket); ++advances) ASSERT_TRUE(member.engine.advance().ok());
    EXPECT_GE(advances, 16);
    EXPECT_LE(advances, 20);
  });
}

TEST(Waiting, ALongWaitSleeps) {
  run_group(2, [&](Member& member) {
    const auto list = share(schedule::barrier(2));
    ASSERT_TRUE(member.run(call_of(list)).ok());
    if (member.rank == 1) std::this_thread::sleep_for(500ms);
    timespec before{}, after{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &before);
    ASSERT_TRUE(member.run(call_of(list)).ok());
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &after);
    const double used = static_cast<double>(after.tv_sec - before.tv_sec) +
                        static_cast<double>(after.tv_nsec - before.tv_nsec) * 1e-9;
    EXPECT_LT(used, 0.1);
    if (member.rank == 0) {
      EXPECT_GT(member.engine.stats().wait_ns, 200'000'000);
    }
  });
}

TEST(Waiting, RanksThatWaitForTwoGroupsInOppositeOrdersBothFinish) {
  const auto segment = test::make_segment(2);
  const auto list = share(schedule::all_reduce_direct(2, 5000));
  test::run_threads(2, [&](int rank) {
    Heap heap(segment, rank);
    std::vector<std::unique_ptr<Engine>> engines;
    std::vector<uint64_t> tickets;
    for (int group = 0; group < 2; ++group) {
      engines.push_back(Engine::create(segment, group, {0, 1}, rank).or_throw());
      Call call = call_of(list);
      call.input = call.output = heap.allocate(20000, "test").or_throw().data;
      tickets.push_back(engines[group]->submit(call).or_throw());
    }
    const int first = rank;
    const int second = 1 - rank;
    EXPECT_TRUE(engines[first]->wait(tickets[first], {engines[second].get()}).ok());
    EXPECT_TRUE(engines[second]->wait(tickets[second], {engines[first].get()}).ok());
  });
}

TEST(Waiting, ForAnUnknownTicketIsRefused) {
  run_group(
      1, [&](Member& member) { EXPECT_EQ(member.engine.wait(1).code(), Code::kInvalidArgument); });
}

TEST(Create, RefusesWhatIsNoGroup) {
  const auto segment = test::make_segment(2);
  EXPECT_FALSE(Engine::create(segment, 256, {0, 1}, 0).ok());
  EXPECT_FALSE(Engine::create(segment, 0, {0, 2}, 0).ok());
  EXPECT_FALSE(Engine::create(segment, 0, {0, 0}, 0).ok());
  EXPECT_FALSE(Engine::create(segment, 0, {1}, 0).ok());
}

TEST(FlagLine, KeepsEveryFieldOfADescriptor) {
  internal::Descriptor d;
  d.routine = Routine::kReduceScatter;
  d.dtype = DType::kInt64;
  d.op = ReduceOp::kProd;
  d.root = 63;
  d.operation = 0x12345;
  d.tag = ~uint64_t{0};
  d.call_site = 0xdeadbeef;
  d.fingerprint = 0x89abcdef;
  d.count = int64_t{1} << 40;
  d.input = 4096;
  d.stride = 77;
  const internal::Descriptor back = internal::decode(internal::encode(d));
  EXPECT_EQ(back.routine, d.routine);
  EXPECT_EQ(back.dtype, d.dtype);
  EXPECT_EQ(back.op, d.op);
  EXPECT_EQ(back.root, 63);
  EXPECT_EQ(back.operation, 0x2345u);
  EXPECT_EQ(back.tag, d.tag);
  EXPECT_EQ(back.call_site, d.call_site);
  EXPECT_EQ(back.fingerprint, d.fingerprint);
  EXPECT_EQ(back.count, d.count);
  EXPECT_EQ(back.input, 4096);
  EXPECT_EQ(back.output, internal::kPrivate);
  EXPECT_EQ(back.stride, 77);
}

TEST(FlagLine, CallSitesAndAddressesMayDiffer) {
  internal::Descriptor a, b;
  b.call_site = 9;
  b.input = 64;
  EXPECT_TRUE(internal::same_call(internal::encode(a), internal::encode(b)));
  b.count = 1;
  EXPECT_FALSE(internal::same_call(internal::encode(a), internal::encode(b)));
}

}  // namespace
}  // namespace hanji::shm
