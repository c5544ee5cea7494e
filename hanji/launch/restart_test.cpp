#include "hanji/launch/restart.h"

#include <gmock/gmock.h>
#include <signal.h>
#include <unistd.h>

#include <fstream>

#include "hanji/base/clock.h"
#include "hanji/launch/internal/restart_policy.h"
#include "hanji/test/temporary_folder.h"
#include "hanji/trace/recorder.h"

namespace hanji::launch {
namespace {

using namespace std::chrono_literals;
using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

std::string text_of_file(const std::filesystem::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// Rank 1 of 2 failed in the given way.
Outcome failed_at(int64_t step, int exit_code, int signal = 0) {
  Outcome outcome;
  outcome.exit_code = signal != 0 ? 128 + signal : exit_code;
  outcome.first_failed = 1;
  outcome.cause = "rank 1 fell";
  outcome.ranks.resize(2);
  outcome.ranks[1].exit_code = exit_code;
  outcome.ranks[1].signal = signal;
  outcome.ranks[1].step = step;
  return outcome;
}

TEST(RestartPolicy, TheSameFailureAtTheSameStepEndsItAtTheThirdTime) {
  const RestartOptions options{.max_restarts = 100};
  RestartPolicy policy(options);
  EXPECT_TRUE(policy.after(failed_at(57, 3), 1s).restart);
  EXPECT_TRUE(policy.after(failed_at(57, 3), 1s).restart);
  const RestartDecision last = policy.after(failed_at(57, 3), 1s);
  EXPECT_FALSE(last.restart);
  EXPECT_THAT(last.text, AllOf(HasSubstr("3 times in a row at step 57"), HasSubstr("rank 1 fell")));
}

TEST(RestartPolicy, AnotherStepOrAnotherErrorCountsAnew) {
  const RestartOptions options{.max_restarts = 100};
  RestartPolicy policy(options);
  for (const int64_t step : {57, 57, 58, 58, 57, 57}) {
    EXPECT_TRUE(policy.after(failed_at(step, 3), 1s).restart);
  }
  EXPECT_TRUE(policy.after(failed_at(57, 4), 1s).restart);
  EXPECT_TRUE(policy.after(failed_at(57, 0, SIGKILL), 1s).restart);
}

TEST(RestartPolicy, WithoutStepsALongLifeCountsAsProgress) {
  const RestartOptions options{.max_restarts = 100, .healthy_time = 60s};
  RestartPolicy policy(options);
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(policy.after(failed_at(-1, 1), 100s).restart);
  EXPECT_TRUE(policy.after(failed_at(-1, 1), 1s).restart);
  EXPECT_THAT(policy.after(failed_at(-1, 1), 1s).text, HasSubstr("before its first step"));
}

TEST(RestartPolicy, ThePauseDoublesWhileNothingMovesAndHasALimit) {
  const RestartOptions options{
      .max_restarts = 100, .pause = 200ms, .max_pause = 1s, .max_same_failures = 50};
  RestartPolicy policy(options);
  for (const auto pause : {200ms, 400ms, 800ms, 1000ms, 1000ms}) {
    EXPECT_EQ(policy.after(failed_at(8, 3), 1s).pause, pause);
  }
  EXPECT_EQ(policy.after(failed_at(9, 3), 1s).pause, 200ms);
}

TEST(RestartPolicy, WhatWasStoppedOrDoneIsNotRestarted) {
  const RestartOptions options{.max_restarts = 5};
  Outcome stopped = failed_at(8, 3);
  stopped.stop_signal = SIGTERM;
  for (const Outcome& outcome : {Outcome{}, stopped, failed_at(8, 75), failed_at(8, 130)}) {
    const RestartDecision decision = RestartPolicy(options).after(outcome, 1s);
    EXPECT_FALSE(decision.restart);
    EXPECT_EQ(decision.text, "");
  }
}

class Restart : public testing::Test {
 protected:
  LaunchOptions options(const std::string& script) {
    LaunchOptions options;
    options.command = {"sh", "-c", script};
    options.ranks = 2;
    options.log_directory = folder_.path() / "logs";
    options.segment.heap_bytes_per_rank = 1 << 20;
    options.segment.trace_events = 64;
    options.on_event = [this](const RankEvent& event) { events_.push_back(event); };
    return options;
  }
  std::vector<std::string> texts(RankEventKind kind) const {
    std::vector<std::string> texts;
    for (const RankEvent& event : events_) {
      if (event.kind == kind) texts.push_back(event.text);
    }
    return texts;
  }
  std::string log(int rank) const {
    return text_of_file(folder_.path() / "logs" / ("rank." + std::to_string(rank)));
  }

  test::TemporaryFolder folder_;
  std::vector<RankEvent> events_;
};

TEST_F(Restart, StartsAllRanksAgainAndTellsThemHowOften) {
  const auto outcome = launch_with_restarts(
      options("echo go $TORCHELASTIC_RESTART_COUNT; test $TORCHELASTIC_RESTART_COUNT = 2 || "
              "exit $((TORCHELASTIC_RESTART_COUNT + 7))"),
      {.max_restarts = 3, .pause = 1ms});
  ASSERT_TRUE(outcome.ok()) << outcome.status().to_string();
  EXPECT_EQ(outcome->exit_code, 0);
  EXPECT_EQ(outcome->first_failed, -1);
  EXPECT_EQ(log(1), "go 0\ngo 1\ngo 2\n");
  EXPECT_THAT(texts(RankEventKind::kRestarted),
              testing::ElementsAre(StartsWith("restart 1 of 3"), StartsWith("restart 2 of 3")));
}

TEST_F(Restart, GivesUpWithWhatHappenedWhenAllAreUsed) {
  const auto outcome = launch_with_restarts(
      options("test $RANK = 1 && exit $((TORCHELASTIC_RESTART_COUNT + 7)); exec sleep 1000"),
      {.max_restarts = 1, .pause = 1ms});
  ASSERT_TRUE(outcome.ok());
  EXPECT_EQ(outcome->exit_code, 8);
  EXPECT_EQ(events_.back().kind, RankEventKind::kGaveUp);
  EXPECT_THAT(events_.back().text, AllOf(HasSubstr("1 restarts were allowed"),
                                         HasSubstr("rank 1 (host "), HasSubstr("with code 8")));
}

TEST_F(Restart, ACrashLoopIsLeft) {
  const auto outcome = launch_with_restarts(options("exit 9"), {.max_restarts = 100, .pause = 1ms});
  ASSERT_TRUE(outcome.ok());
  EXPECT_EQ(outcome->exit_code, 9);
  EXPECT_EQ(texts(RankEventKind::kRestarted).size(), 2u);
  EXPECT_THAT(events_.back().text, HasSubstr("3 times in a row"));
}

TEST_F(Restart, PrepareSeesTheLastOutcomeAndChangesTheCommand) {
  std::vector<int> codes;
  RestartOptions restarts{.max_restarts = 5, .pause = 1ms};
  restarts.prepare = [&](const Attempt& attempt, LaunchOptions& launch) -> Status {
    codes.push_back(attempt.previous == nullptr ? -1 : attempt.previous->exit_code);
    EXPECT_EQ(attempt.restarts, static_cast<int>(codes.size()) - 1);
    if (attempt.restarts == 1) launch.command = {"true"};
    return {};
  };
  const auto outcome = launch_with_restarts(options("exit 9"), restarts);
  ASSERT_TRUE(outcome.ok());
  EXPECT_EQ(outcome->exit_code, 0);
  EXPECT_EQ(codes, (std::vector{-1, 9}));
}

TEST_F(Restart, PrepareMayRefuse) {
  RestartOptions restarts{.max_restarts = 5};
  restarts.prepare = [](const Attempt&, LaunchOptions&) { return base::corrupt("no checkpoint"); };
  EXPECT_EQ(launch_with_restarts(options("true"), restarts).status().code(), Code::kCorrupt);
}

TEST_F(Restart, ASignalInThePauseEndsIt) {
  for (const bool saves : {false, true}) {
    LaunchOptions interrupted = options("exit 9");
    interrupted.saves_at_stop = saves;
    interrupted.on_event = [this](const RankEvent& event) {
      events_.push_back(event);
      if (event.kind == RankEventKind::kRestarted) ::kill(::getpid(), SIGINT);
    };
    const int64_t start = base::now_ns();
    const auto outcome =
        launch_with_restarts(interrupted, {.max_restarts = 5, .pause = 100s, .max_pause = 100s});
    ASSERT_TRUE(outcome.ok());
    EXPECT_LT(base::now_ns() - start, 50'000'000'000);
    EXPECT_EQ(outcome->exit_code, saves ? 130 : 9);
    EXPECT_EQ(outcome->stop_signal, SIGINT);
    EXPECT_EQ(events_.back().kind, RankEventKind::kGaveUp);
  }
}

TEST_F(Restart, ANegativeNumberIsRefused) {
  EXPECT_EQ(launch_with_restarts(options("true"), {.max_restarts = -1}).status().code(),
            Code::kInvalidArgument);
}

}  // namespace
}  // namespace hanji::launch
