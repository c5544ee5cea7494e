#include "hanji/base/sigpipe_guard.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <thread>

namespace hanji::base {
namespace {

/// A pipe whose reader has left.
class SigpipeGuardTest : public testing::Test {
 protected:
  void SetUp() override {
    before_ = ::signal(SIGPIPE, SIG_DFL);
    std::array<int, 2> ends{};
    ASSERT_EQ(::pipe(ends.data()), 0);
    ::close(ends[0]);
    to_nobody_ = ends[1];
  }
  void TearDown() override {
    ::close(to_nobody_);
    ::signal(SIGPIPE, before_);
  }
  int error_of_a_write() const { return ::write(to_nobody_, "x", 1) < 0 ? errno : 0; }

  int to_nobody_ = -1;
  sighandler_t before_ = SIG_DFL;
};
using SigpipeGuardDeathTest = SigpipeGuardTest;

TEST_F(SigpipeGuardTest, AWriteToNobodyIsAnErrorAndNoSignal) {
  {
    const SigpipeGuard guard;
    EXPECT_EQ(error_of_a_write(), EPIPE);
  }
  sigset_t pending;
  sigpending(&pending);
  EXPECT_EQ(sigismember(&pending, SIGPIPE), 0);
}

TEST_F(SigpipeGuardTest, ThreadsThatStartMeanwhileKeepIt) {
  std::thread writer;
  int error = 0;
  std::array<int, 2> turn{};
  ASSERT_EQ(::pipe(turn.data()), 0);
  {
    const SigpipeGuard guard;
    writer = std::thread([&] {
      char go = 0;
      while (::read(turn[0], &go, 1) < 0) {
      }
      error = error_of_a_write();
    });
  }
  ASSERT_EQ(::write(turn[1], "x", 1), 1);
  writer.join();
  EXPECT_EQ(error, EPIPE);
  for (const int end : turn) ::close(end);
}

TEST_F(SigpipeGuardDeathTest, AfterItASignalIsOneAgain) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  { const SigpipeGuard guard; }
  EXPECT_EXIT(error_of_a_write(), testing::KilledBySignal(SIGPIPE), "");
}

}  // namespace
}  // namespace hanji::base
