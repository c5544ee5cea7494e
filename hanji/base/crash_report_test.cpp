#include "hanji/base/crash_report.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>

namespace hanji::base {
namespace {

using testing::KilledBySignal;

[[gnu::noinline]] void write_to(uintptr_t address) {
  volatile uintptr_t hidden = address;
  *reinterpret_cast<volatile int*>(hidden) = 1;
}

/// Reads its own frame after the call, so that no loop can replace it.
[[gnu::noinline]] unsigned overflow(unsigned depth) {
  volatile char room[4096] = {};
  const unsigned below = depth == 0 ? 0 : overflow(depth + 1);
  return below + static_cast<unsigned>(room[depth % 8]);
}

/// A sanitizer handles these signals itself, so they are not the default's to report.
constexpr bool kSanitized =
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    true;
#else
    false;
#endif

TEST(CrashReport, NamesProcessSignalAddressAndStack) {
  if (kSanitized) GTEST_SKIP() << "the sanitizer reports SIGSEGV itself";
  EXPECT_EXIT(
      {
        report_crashes(STDERR_FILENO, "rank 3");
        write_to(0x10);
      },
      KilledBySignal(SIGSEGV),
      "rank 3 \\(process [0-9]+\\): SIGSEGV at address 0x10; stack of thread [0-9]+:\n  #0 "
      ".*\\[.0x");
}

TEST(CrashReport, AnAbortKeepsItsSignal) {
  EXPECT_EXIT(
      {
        report_crashes(STDERR_FILENO, "rank 3");
        std::abort();
      },
      KilledBySignal(SIGABRT), "SIGABRT; stack of thread");
}

TEST(CrashReport, AStackOverflowIsReportedToo) {
  if (kSanitized) GTEST_SKIP() << "the sanitizer reports SIGSEGV itself";
  EXPECT_EXIT(
      {
        report_crashes(STDERR_FILENO, "rank 3");
        std::_Exit(static_cast<int>(overflow(1)));
      },
      KilledBySignal(SIGSEGV), "SIGSEGV at address");
}

TEST(CrashReport, AnswersAQuestionAndGoesOn) {
  EXPECT_EXIT(
      {
        report_crashes(STDERR_FILENO, "rank 3");
        ::raise(SIGURG);
        ::_exit(7);
      },
      testing::ExitedWithCode(7), "asked where it is; stack of thread [0-9]+:\n  #0 ");
}

TEST(CrashReport, TheProgramsOwnHandlerStays) {
  EXPECT_EXIT(
      {
        ::signal(SIGSEGV, [](int) { ::_exit(9); });
        report_crashes(STDERR_FILENO, "rank 3");
        ::raise(SIGSEGV);
      },
      testing::ExitedWithCode(9), "");
}

}  // namespace
}  // namespace hanji::base
