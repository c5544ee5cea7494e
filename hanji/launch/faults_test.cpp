// Every fault in every phase: who says what, and what is left.
#include <gmock/gmock.h>
#include <signal.h>
#include <unistd.h>

#include <fstream>
#include <map>

#include "hanji/test/fault_trial.h"
#include "hanji/test/temporary_folder.h"

namespace hanji::launch {
namespace {

using namespace std::chrono_literals;
using test::run_fault;
using test::strike_at_random;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

std::string children() {
  std::ifstream file("/proc/self/task/" + std::to_string(::gettid()) + "/children");
  return {std::istreambuf_iterator<char>(file), {}};
}

struct Expected {
  int exit_code;
  const char* how;
};

const std::map<std::string, Expected> kExpected = {
    {"kill", {128 + SIGKILL, "was killed by SIGKILL"}},
    {"segv", {128 + SIGSEGV, "was killed by SIGSEGV"}},
    {"abort", {128 + SIGABRT, "was killed by SIGABRT"}},
    {"exception", {1, "exited with code 1: std::runtime_error: page 7 is missing"}},
    {"exit", {6, "exited with code 0"}},
};

class Faults : public testing::TestWithParam<std::tuple<std::string, std::string>> {
 protected:
  test::TemporaryFolder folder_;
};

TEST_P(Faults, AreNamedByEverySurvivorAndTheLauncher) {
  const auto& [kind, phase] = GetParam();
  const Expected expected = kExpected.at(kind);
  const auto trial = run_fault({.kind = kind, .phase = phase}, folder_.path());
  ASSERT_TRUE(trial.ok()) << trial.status().to_string();
  const Outcome& outcome = trial->outcome;
  // An exception has left the phase before anybody is told.
  const std::string in = kind == "exception" ? "" : ", in " + phase + ")";
  EXPECT_EQ(outcome.exit_code, expected.exit_code);
  EXPECT_EQ(outcome.first_failed, 1);
  EXPECT_EQ(trial->events.back().kind, RankEventKind::kCause);
  EXPECT_THAT(trial->events.back().text,
              AllOf(StartsWith("cause: rank 1 (host "), HasSubstr("step 5" + in),
                    HasSubstr("operation"), HasSubstr("faults_rank.cpp"), HasSubstr(expected.how)));
  for (const RankEvent& event : trial->events) {  // what it died of is told once, as the cause
    if (event.kind != RankEventKind::kSecondary) continue;
    EXPECT_THAT(event.text, Not(HasSubstr(expected.how)));
  }
  for (const int survivor : {0, 2}) {
    EXPECT_TRUE(outcome.ranks[survivor].secondary);
    EXPECT_EQ(outcome.ranks[survivor].exit_code, 6);
    EXPECT_THAT(trial->logs[survivor],
                AllOf(HasSubstr("rank 1 (host "), HasSubstr("step 5" + in), HasSubstr("operation "),
                      HasSubstr("faults_rank.cpp"),
                      HasSubstr("process " + std::to_string(outcome.ranks[1].pid))));
    EXPECT_GE(trial->seconds_to_see[survivor], 0);
    EXPECT_LT(trial->seconds_to_see[survivor], 10);
  }
  EXPECT_EQ(children(), "");
  for (const auto& entry : std::filesystem::directory_iterator(folder_.path())) {
    EXPECT_THAT(entry.path().filename().string(), testing::AnyOf("logs", "checkpoint"));
  }
}

std::string stack_of(const test::FaultTrial& trial) {
  for (const RankEvent& event : trial.events) {
    if (event.kind == RankEventKind::kStack && event.rank == 1) return event.text;
  }
  return "";
}

TEST_P(Faults, OfTheProcessAreToldWithItsStack) {
  const auto& [kind, phase] = GetParam();
  if (phase != "forward" || (kind != "segv" && kind != "abort")) return;
  const auto trial = run_fault({.kind = kind, .phase = phase}, folder_.path());
  ASSERT_TRUE(trial.ok());
  EXPECT_THAT(trial->logs[1],
              AllOf(HasSubstr(kind == "segv" ? "SIGSEGV at address 0x10" : "SIGABRT"),
                    HasSubstr("stack of thread"), HasSubstr("(main+")));
  EXPECT_THAT(stack_of(*trial), AllOf(StartsWith("rank 1 (process "),
                                      HasSubstr(kind == "segv" ? "write_nowhere()" : "abort"),
                                      HasSubstr("main+0x"), HasSubstr(" in hanji_faults_rank")));
}

INSTANTIATE_TEST_SUITE_P(
    InEveryPhase, Faults,
    testing::Combine(testing::Values("kill", "segv", "abort", "exception", "exit"),
                     testing::Values("forward", "collective", "optimizer", "save")));

class Job : public testing::Test {
 protected:
  /// Sends `signals` to this process, the first when all run and each next once one was forwarded.
  LaunchOptions signalled(std::vector<int> signals, int ranks) {
    LaunchOptions options;
    options.on_event = [signals, ranks, started = 0,
                        sent = size_t{0}](const RankEvent& event) mutable {
      started += event.kind == RankEventKind::kStarted;
      const bool first = event.kind == RankEventKind::kStarted && started == ranks;
      if (first) ::usleep(300'000);
      const bool next = event.kind == RankEventKind::kForwarded && sent < signals.size();
      if (first || next) ::kill(::getpid(), signals[sent++]);
    };
    return options;
  }
  std::string checkpoint() const {
    std::ifstream file(folder_.path() / "checkpoint");
    return {std::istreambuf_iterator<char>(file), {}};
  }

  test::TemporaryFolder folder_;
};

TEST_F(Job, AStoppedRankIsNamedAndTheDeadlineEndsTheJob) {
  LaunchOptions options;
  options.kill_grace = 200ms;
  const auto trial = run_fault({.kind = "stop", .phase = "collective"}, folder_.path(), options);
  ASSERT_TRUE(trial.ok());
  EXPECT_EQ(trial->outcome.exit_code, 5);
  for (const int survivor : {0, 2}) {
    EXPECT_THAT(trial->logs[survivor],
                AllOf(HasSubstr("rank 1 (host "), HasSubstr("is stopped"), HasSubstr("state T")));
  }
  EXPECT_EQ(trial->outcome.ranks[1].signal, SIGKILL);
  EXPECT_TRUE(trial->outcome.ranks[1].secondary);
  EXPECT_EQ(children(), "");
}

TEST_F(Job, AHungRankTellsWhereItIs) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "a signal waits for the next call, and the loop makes none";
#endif
  LaunchOptions options;
  options.kill_grace = 200ms;
  const auto trial = run_fault({.kind = "hang", .phase = "optimizer"}, folder_.path(), options);
  ASSERT_TRUE(trial.ok());
  EXPECT_EQ(trial->outcome.exit_code, 5);
  EXPECT_THAT(trial->outcome.cause, HasSubstr("absent rank 1"));
  EXPECT_THAT(stack_of(*trial), AllOf(HasSubstr("rank 1 (process "), HasSubstr("asked where it is"),
                                      HasSubstr("spin_for_ever()")));
  EXPECT_EQ(children(), "");
}

TEST_F(Job, APreemptionSavesAndAsksToBeQueuedAgain) {
  const auto trial = run_fault({.ranks = 1}, folder_.path(), signalled({SIGTERM}, 1));
  ASSERT_TRUE(trial.ok());
  EXPECT_EQ(trial->outcome.exit_code, 75);
  EXPECT_EQ(trial->outcome.first_failed, -1);
  EXPECT_NE(checkpoint(), "");
}

TEST_F(Job, AnInterruptSavesAndASecondOneKills) {
  const auto once = run_fault({.ranks = 1}, folder_.path(), signalled({SIGINT}, 1));
  ASSERT_TRUE(once.ok());
  EXPECT_EQ(once->outcome.exit_code, 130);
  EXPECT_NE(checkpoint(), "");
  const auto twice = run_fault({.kind = "deaf"}, folder_.path(), signalled({SIGINT, SIGINT}, 3));
  ASSERT_TRUE(twice.ok());
  EXPECT_EQ(twice->outcome.exit_code, 130);
  EXPECT_EQ(twice->outcome.ranks[0].signal, SIGKILL);
}

TEST_F(Job, RandomKillsAreNamedByAll) {
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    const auto folder = folder_.path() / std::to_string(seed);
    std::filesystem::create_directory(folder);
    const auto named = strike_at_random({.seed = seed}, folder);
    EXPECT_TRUE(named.ok()) << named.status().message();
  }
  EXPECT_EQ(children(), "");
}

}  // namespace
}  // namespace hanji::launch
