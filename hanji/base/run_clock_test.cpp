#include "hanji/base/run_clock.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "hanji/base/clock.h"

namespace hanji::base {
namespace {

using namespace std::chrono_literals;

constexpr int64_t kSecond = 1'000'000'000;

TEST(RunClock, IsTheTimeThatItIsGivenUntilSomebodyTicks) {
  RunClock clock;
  EXPECT_EQ(clock.at(5 * kSecond), 5 * kSecond);
  EXPECT_EQ(clock.at(500 * kSecond), 500 * kSecond);
  EXPECT_EQ(clock.resumed_ns(500 * kSecond), 0);
}

TEST(RunClock, LeavesOutAGapBetweenTicks) {
  RunClock clock;
  clock.start(100 * kSecond);
  for (int64_t ms = 200; ms <= 2000; ms += 200) clock.tick(100 * kSecond + ms * 1'000'000);
  EXPECT_EQ(clock.at(102 * kSecond), 102 * kSecond);
  EXPECT_EQ(clock.resumed_ns(102 * kSecond), 0);
  clock.tick(162 * kSecond);
  EXPECT_EQ(clock.at(162 * kSecond), 103 * kSecond);
  EXPECT_EQ(clock.resumed_ns(162 * kSecond), 162 * kSecond);
  clock.tick(162 * kSecond + kSecond / 2);
  EXPECT_EQ(clock.at(163 * kSecond), 104 * kSecond);
  EXPECT_EQ(clock.resumed_ns(163 * kSecond), 162 * kSecond);
}

TEST(RunClock, LeavesOutATickThatIsOverdue) {
  RunClock clock;
  clock.start(100 * kSecond);
  EXPECT_EQ(clock.at(400 * kSecond), 101 * kSecond);
  EXPECT_EQ(clock.resumed_ns(400 * kSecond), 400 * kSecond);
  clock.tick(400 * kSecond);
  EXPECT_EQ(clock.at(400 * kSecond), 101 * kSecond);  // it never goes back
}

TEST(RunClock, CountsAllTimeAgainOnceNobodyTicks) {
  RunClock clock;
  clock.start(100 * kSecond);
  clock.stop(160 * kSecond);
  EXPECT_EQ(clock.at(160 * kSecond), 101 * kSecond);
  EXPECT_EQ(clock.at(260 * kSecond), 201 * kSecond);
}

/// A child that waits by `wait` and is stopped for 1.6 s meanwhile; its exit code.
int code_of_stopped(int (*wait)()) {
  const pid_t pid = ::fork();
  if (pid == 0) ::_exit(wait());
  std::this_thread::sleep_for(300ms);
  ::kill(pid, SIGSTOP);
  std::this_thread::sleep_for(1600ms);
  ::kill(pid, SIGCONT);
  int status = 0;
  ::waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(PauseWatch, ADeadlineDoesNotPassWhileTheProcessIsStopped) {
  const auto left_after_stop = [] {
    const auto watch = PauseWatch::start();
    const auto deadline = Deadline::after(1800ms);
    const int64_t begin = now_ns();
    while (now_ns() - begin < 1'850'000'000 && resumed_ns() == 0) std::this_thread::sleep_for(1ms);
    return watch.ok() && !deadline.passed() && deadline.remaining() < 1800ms ? 0 : 1;
  };
  EXPECT_EQ(code_of_stopped(left_after_stop), 0);
}

TEST(PauseWatch, AForkedCopyCountsAllTimeUntilItWatchesItself) {
  const auto watch = PauseWatch::start();
  ASSERT_TRUE(watch.ok());
  const pid_t pid = ::fork();
  if (pid == 0) {
    const int64_t before = running_ns();
    std::this_thread::sleep_for(1100ms);
    const bool goes_on = running_ns() - before > 1'050'000'000;
    const auto own = PauseWatch::start();
    ::_exit(goes_on && own.ok() ? 0 : 1);
  }
  int status = 0;
  ::waitpid(pid, &status, 0);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace hanji::base
