#include "hanji/cli/exit_code.h"

#include <gtest/gtest.h>

#include <csignal>
#include <new>
#include <stdexcept>

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

TEST(ExitCode, MemoryThatRanOutIsToldInPlainWordsWhoeverAskedForIt) {
  const std::runtime_error of_libtorch(
      "[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: "
      "you "
      "tried to allocate 1024000000 bytes.\nframe #0: c10::ThrowEnforceNotMet");
  EXPECT_EQ(status_of(of_libtorch).message(), status_of(std::bad_alloc()).message());
  EXPECT_EQ(status_of(of_libtorch).code(), Code::kOutOfMemory);
  EXPECT_EQ(status_of(std::runtime_error("other")).code(), Code::kInternal);
}

TEST(ExitCode, MemoryOfAGpuThatRanOutIsToldWithItsFiguresAndAWayOut) {
  const Status of_gpu =
      status_of(std::runtime_error("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has 1.00 "
                                   "GiB free.\nException raised"));
  EXPECT_EQ(of_gpu.code(), Code::kOutOfMemory);
  EXPECT_EQ(of_gpu.message(),
            "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has 1.00 GiB free.; lower "
            "train.micro_batch, the samples that are on the GPU at once");
}

TEST(ExitCode, AStopThatWasSavedSaysWhichSignalAskedForIt) {
  EXPECT_EQ(stop_code(0), 0);
  EXPECT_EQ(stop_code(SIGINT), kInterrupted);
  EXPECT_EQ(stop_code(SIGTERM), kRequeue);
  EXPECT_EQ(stop_code(SIGUSR1), kRequeue);
}

}  // namespace
}  // namespace hanji::cli
