#include "hanji/cli/exit_code.h"

#include <gtest/gtest.h>

#include <csignal>

namespace hanji::cli {
namespace {

TEST(ExitCode, EveryCodeHasItsDocumentedNumber) {
  EXPECT_EQ(exit_code(Code::kOk), 0);
  EXPECT_EQ(exit_code(Code::kInvalidArgument), 2);
  EXPECT_EQ(exit_code(Code::kNotFound), 2);
  EXPECT_EQ(exit_code(Code::kUnsupported), 2);
  EXPECT_EQ(exit_code(Code::kCorrupt), 3);
  EXPECT_EQ(exit_code(Code::kOutOfMemory), 4);
  EXPECT_EQ(exit_code(Code::kTimeout), 5);
  EXPECT_EQ(exit_code(Code::kPeerLost), 6);
  EXPECT_EQ(exit_code(Code::kMismatch), 6);
  EXPECT_EQ(exit_code(Code::kCancelled), 6);
  EXPECT_EQ(exit_code(Code::kInternal), 70);
}

TEST(ExitCode, AStopThatWasSavedSaysWhichSignalAskedForIt) {
  EXPECT_EQ(stop_code(0), 0);
  EXPECT_EQ(stop_code(SIGINT), kInterrupted);
  EXPECT_EQ(stop_code(SIGTERM), kRequeue);
  EXPECT_EQ(stop_code(SIGUSR1), kRequeue);
}

}  // namespace
}  // namespace hanji::cli
