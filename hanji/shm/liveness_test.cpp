// Ranks as forked processes: the same engine, and what survivors are told.
#include "hanji/shm/liveness.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <mutex>

#include "hanji/base/clock.h"
#include "hanji/base/stop_signals.h"
#include "hanji/schedule/all_reduce.h"
#include "hanji/schedule/barrier.h"
#include "hanji/shm/call_site.h"
#include "hanji/shm/internal/segment_layout.h"
#include "hanji/test/run_group.h"
#include "hanji/test/run_processes.h"

namespace hanji::shm {
namespace {

using namespace std::chrono_literals;
using test::call_of;
using test::Member;
using test::run_processes;
using test::share;
using testing::AllOf;
using testing::HasSubstr;

// Joins, waits for all ranks, and watches those of them that are processes of their own.
std::unique_ptr<Watchdog> watch(const std::shared_ptr<Segment>& segment, int rank,
                                WatchdogOptions options = {}) {
  segment->join(rank);
  std::vector<base::Fd> pidfds;
  for (int peer = 0; peer < segment->ranks(); ++peer) {
    while (segment->pid(peer) == 0) ::usleep(100);
    pidfds.push_back(peer == rank ? base::Fd() : open_pidfd(segment->pid(peer)).or_throw());
  }
  return Watchdog::start(segment, rank, std::move(pidfds), std::move(options)).or_throw();
}

TEST(Processes, SumLikeThreads) {
  const auto segment = test::make_segment(3);
  const auto direct = share(schedule::all_reduce_direct(3, 10007));
  const auto flat = share(schedule::all_reduce_flat(3, 2));
  const auto answers = run_processes(3, [&](int rank) {
    const auto watchdog = watch(segment, rank);
    float sum = 0;
    test::run_member(segment, rank, [&](Member& member) {
      auto* data = member.allocate<float>(10007);
      for (int round = 0; round < 50; ++round) {
        std::fill(data, data + 10007, static_cast<float>(rank + round));
        for (const auto& list : {direct, flat}) {
          Call call = call_of(list);
          call.input = call.output = data;
          base::throw_if_error(member.run(call));
        }
        sum += data[0] + data[10006];
      }
    });
    return std::to_string(static_cast<int>(sum));
  });
  // Round k: the direct list makes 3 + 3k of every element, the flat one triples the first two.
  EXPECT_THAT(answers, testing::Each(std::to_string(4 * (150 + 3 * 1225))));
}

TEST(Processes, AKilledRankIsNamedOnEverySurvivor) {
  const auto segment = test::make_segment(4);
  const auto list = share(schedule::barrier(4));
  const auto answers = run_processes(4, [&](int rank) {
    const auto watchdog = watch(segment, rank);
    std::string verdict;
    test::run_member(segment, rank, [&](Member& member) {
      Call call = call_of(list);
      call.call_site = segment->call_sites().intern(rank, "step.cpp:9");
      Status status;
      for (int i = 0; i < 4 && status.ok(); ++i) {
        if (rank == 2 && i == 3) ::kill(::getpid(), SIGKILL);
        status = member.run(call);
      }
      verdict = status.to_string();
    });
    return verdict;
  });
  EXPECT_EQ(answers[2], "(killed by signal 9)");
  for (const int survivor : {0, 1, 3}) {
    EXPECT_THAT(answers[survivor],
                AllOf(HasSubstr("peer_lost"), HasSubstr("rank 2 (host "), HasSubstr("died"),
                      HasSubstr("operation 3, barrier() at step.cpp:9")));
  }
}

TEST(Processes, AComputingRankLearnsOfADeathAtItsNextCall) {
  const auto segment = test::make_segment(2);
  const auto list = share(schedule::barrier(2));
  const auto answers = run_processes(2, [&](int rank) {
    const auto watchdog = watch(segment, rank);
    if (rank == 1) ::kill(::getpid(), SIGKILL);
    while (!segment->aborted()) ::usleep(100);  // computing
    std::string verdict;
    test::run_member(segment, rank, [&](Member& member) {
      verdict = member.engine.submit(call_of(list)).status().to_string();
    });
    return verdict;
  });
  EXPECT_THAT(answers[0], AllOf(HasSubstr("peer_lost"), HasSubstr("rank 1")));
}

TEST(Processes, ARankThatLeftIsNoFault) {
  const auto segment = test::make_segment(2);
  const auto answers = run_processes(2, [&](int rank) {
    auto watchdog = watch(segment, rank);
    if (rank == 1) {
      watchdog.reset();
      return std::string("left");
    }
    ::usleep(200'000);
    return segment->abort_status().to_string();
  });
  EXPECT_EQ(answers[0], "ok");
}

TEST(Processes, AStoppedRankIsNamedAndSurvivesIfItGoesOn) {
  const auto segment = test::make_segment(2);
  const auto answers = run_processes(2, [&](int rank) {
    std::mutex mutex;
    std::string seen;
    WatchdogOptions options;
    options.heartbeat = 50ms;
    options.on_event = [&](const LivenessEvent& event) {
      const std::lock_guard lock(mutex);
      seen += event.text + "\n";
    };
    auto watchdog = watch(segment, rank, options);
    const int64_t start = base::now_ns();
    if (rank == 0) {
      ::kill(segment->pid(1), SIGSTOP);
      for (bool named = false; !named && base::now_ns() - start < 20'000'000'000;) {
        ::usleep(1000);
        const std::lock_guard lock(mutex);
        named = seen.find("is stopped") != std::string::npos;
      }
      ::kill(segment->pid(1), SIGCONT);
    }
    test::run_member(segment, rank, [&](Member& member) {
      base::throw_if_error(member.run(call_of(share(schedule::barrier(2)))));
    });
    watchdog.reset();
    return seen;
  });
  EXPECT_THAT(answers[0], AllOf(HasSubstr("rank 1 (host "), HasSubstr("is stopped: no heart"),
                                HasSubstr(", state ")));
}

TEST(LastCall, IsTheLastInAnyGroup) {
  const auto segment = test::make_segment(1);
  EXPECT_EQ(describe_last_call(segment, 0), "it made no call");
  const auto all = Engine::create(segment, 0, {0}, 0).or_throw();
  const auto axis = Engine::create(segment, 3, {0}, 0).or_throw();
  const auto call_at = [&](Engine& engine, std::string_view site) {
    Call call = call_of(share(schedule::barrier(1)));
    call.call_site = segment->call_sites().intern(0, site);
    base::throw_if_error(engine.wait(engine.submit(call).or_throw()));
  };
  call_at(*all, "group.cpp:54");
  call_at(*axis, "step.cpp:9");
  EXPECT_EQ(describe_last_call(segment, 0),
            "its last call was operation 1, barrier() at step.cpp:9");
  call_at(*all, "evaluate.cpp:3");
  EXPECT_THAT(describe_last_call(segment, 0),
              HasSubstr("operation 2, barrier() at evaluate.cpp:3"));
  forget_last_call(*segment, 0);
  EXPECT_EQ(describe_last_call(segment, 0), "it made no call");
}

/// A process that waits for its end.
pid_t make_launcher() {
  const pid_t pid = ::fork();
  if (pid == 0) {
    while (true) ::pause();
  }
  return pid;
}

TEST(Watchdog, TellsTheDeathOfTheLauncherOnce) {
  const pid_t launcher = make_launcher();
  std::atomic<int> told = 0;
  WatchdogOptions options;
  options.heartbeat = 1ms;
  options.launcher = launcher;
  options.on_event = [&](const LivenessEvent& event) {
    EXPECT_EQ(event.kind, LivenessEvent::Kind::kOrphaned);
    EXPECT_EQ(event.text, fmt::format("process {}, the launcher of this rank, died", launcher));
    ++told;
  };
  const auto watchdog = Watchdog::start(test::make_segment(1), 0, {}, options).or_throw();
  ::usleep(20'000);
  EXPECT_EQ(told, 0);
  ::kill(launcher, SIGKILL);
  ::waitpid(launcher, nullptr, 0);
  const auto deadline = base::Deadline::after(20s);
  while (told == 0 && !deadline.passed()) ::usleep(1000);
  ::usleep(20'000);
  EXPECT_EQ(told, 1);
}

TEST(Processes, RanksThatAreAllPausedAreNotLateNorNamed) {
  const auto segment = test::make_segment(2);
  const pid_t tester = ::fork();
  if (tester ==
      0) {  // stops both ranks for longer than deadline and heartbeats, and goes on with them
    for (int rank = 0; rank < 2; ++rank) {
      while (segment->pid(rank) == 0) ::usleep(1000);
    }
    ::usleep(500'000);
    for (const int signal : {SIGSTOP, SIGCONT}) {
      for (int rank = 0; rank < 2; ++rank) ::kill(segment->pid(rank), signal);
      if (signal == SIGSTOP) ::usleep(2'600'000);
    }
    ::_exit(0);
  }
  const auto answers = run_processes(2, [&](int rank) {
    std::mutex mutex;
    std::string seen;
    WatchdogOptions options;
    options.heartbeat = 700ms;
    options.on_event = [&](const LivenessEvent& event) {
      const std::lock_guard lock(mutex);
      seen += event.text + "\n";
    };
    auto watchdog = watch(segment, rank, options);
    if (rank == 1) ::usleep(3'500'000);  // rank 0 waits for it meanwhile
    test::run_member(segment, rank,
                     [&](Member& member) {
                       base::throw_if_error(member.run(call_of(share(schedule::barrier(2)))));
                     },
                     {.deadline = 2400ms});
    watchdog.reset();
    return seen;
  });
  ::waitpid(tester, nullptr, 0);
  EXPECT_THAT(answers, testing::Each(""));
}

/// A rank ends so by the word of another one, before it has read a signal of its own.
TEST(Watchdog, ASignalThatNobodyHasReadDoesNotEndTheProcessWhenItEnds) {
  const int child = ::fork();
  if (child == 0) {
    auto watchdog = Watchdog::start(test::make_segment(1), 0, {}, {}).or_throw();
    const base::HeldStopSignals held;
    ::kill(::getpid(), SIGTERM);
    watchdog.reset();
    ::_exit(7);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status)) << "ended by signal " << WTERMSIG(status);
  EXPECT_EQ(WEXITSTATUS(status), 7);
}

TEST(Watchdog, BeatsAndLeaves) {
  const auto segment = test::make_segment(1);
  const internal::RankState& state = segment->rank_state(0);
  WatchdogOptions options;
  options.heartbeat = 1ms;
  auto watchdog = Watchdog::start(segment, 0, {}, options).or_throw();
  EXPECT_EQ(segment->pid(0), ::getpid());
  EXPECT_EQ(state.presence.load(), static_cast<uint32_t>(internal::Presence::kHere));
  const int64_t first = state.heartbeat_ns.load();
  const auto deadline = base::Deadline::after(20s);
  while (state.heartbeat_ns.load() == first && !deadline.passed()) ::usleep(1000);
  EXPECT_GT(state.heartbeat_ns.load(), first);
  watchdog.reset();
  EXPECT_EQ(state.presence.load(), static_cast<uint32_t>(internal::Presence::kLeft));
}

}  // namespace
}  // namespace hanji::shm
