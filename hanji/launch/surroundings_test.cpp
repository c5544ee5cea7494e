// A job in bad surroundings: what lacks is told before anything starts, or does not matter.
#include <gmock/gmock.h>

#include <grp.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <unistd.h>
#include <algorithm>
#include <sstream>

#include <fstream>

#include "hanji/base/clock.h"
#include "hanji/base/log.h"
#include "hanji/base/run_clock.h"
#include "hanji/shm/liveness.h"
#include "hanji/shm/segment.h"
#include "hanji/test/fault_trial.h"
#include "hanji/test/run_processes.h"
#include "hanji/test/temporary_folder.h"

namespace hanji::launch {
namespace {

using test::Fault;
using test::FaultTrial;
using test::run_fault;
using test::run_processes;
using testing::AllOf;
using testing::HasSubstr;

class Surroundings : public testing::Test {
 protected:
  /// A few steps of three ranks; "ok", or why they did not end well.
  std::string run_job(LaunchOptions options = {}) const {
    const auto trial = run_fault({.num_steps = 20}, folder_.path(), std::move(options));
    if (!trial.ok()) return trial.status().to_string();
    return trial->outcome.exit_code == 0 ? "ok" : trial->outcome.cause;
  }
  void write_logs_to(const char* file) const {
    std::filesystem::create_directory(folder_.path() / "logs");
    for (int rank = 0; rank < 3; ++rank) {
      std::filesystem::create_symlink(file,
                                      folder_.path() / "logs" / ("rank." + std::to_string(rank)));
    }
  }
  test::TemporaryFolder folder_;
};

/// Root is not held to the limit on processes.
bool become_ordinary() {
  return ::geteuid() != 0 ||
         (::setgroups(0, nullptr) == 0 && ::setresgid(65534, 65534, 65534) == 0 &&
          ::setresuid(65534, 65534, 65534) == 0);
}

TEST_F(Surroundings, ATinyDevShmDoesNotMatter) {
  const auto answers = run_processes(1, [&](int) -> std::string {
    const int flags = CLONE_NEWNS | (::geteuid() == 0 ? 0 : CLONE_NEWUSER);
    const bool mounted = ::unshare(flags) == 0 &&
                         ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
                         ::mount("tmpfs", "/dev/shm", "tmpfs", 0, "size=64k") == 0;
    return mounted ? run_job() : "no namespaces";
  });
  if (answers[0] == "no namespaces") GTEST_SKIP() << "mounting is not allowed here";
  EXPECT_EQ(answers[0], "ok");
}

TEST_F(Surroundings, TooFewDescriptorsAreToldBeforeAnythingStarts) {
  const auto answers = run_processes(1, [&](int) {
    const rlimit limit{24, 24};
    ::setrlimit(RLIMIT_NOFILE, &limit);
    return run_job();
  });
  EXPECT_THAT(answers[0], AllOf(HasSubstr("invalid_argument"), HasSubstr("3 ranks"),
                                HasSubstr("the limit is 24"), HasSubstr("ulimit -n")));
  EXPECT_FALSE(std::filesystem::exists(folder_.path() / "logs"));
}

TEST_F(Surroundings, ALimitOnProcessesIsNamed) {
  std::filesystem::permissions(folder_.path(), std::filesystem::perms::all);
  const auto answers = run_processes(1, [&](int) -> std::string {
    const rlimit none{0, 0};
    if (!become_ordinary() || ::setrlimit(RLIMIT_NPROC, &none) != 0) return "not possible";
    return run_job();
  });
  if (answers[0] == "not possible") GTEST_SKIP() << "limits cannot be set here";
  EXPECT_THAT(answers[0], AllOf(HasSubstr("fork rank 0"), HasSubstr("ulimit -u")));
}

TEST_F(Surroundings, ALimitOnThreadsIsNamed) {
  const auto answers = run_processes(1, [&](int) -> std::string {
    const auto segment = shm::Segment::create({.ranks = 1}).or_throw();
    const auto pauses = base::PauseWatch::start().or_throw();  // which every world shares
    const rlimit none{0, 0};
    if (!become_ordinary() || ::setrlimit(RLIMIT_NPROC, &none) != 0) return "not possible";
    return shm::Watchdog::start(segment, 0, {}, {}).status().to_string();
  });
  if (answers[0] == "not possible") GTEST_SKIP() << "limits cannot be set here";
  EXPECT_THAT(answers[0], AllOf(HasSubstr("watchdog"), HasSubstr("ulimit -u")));
}

TEST_F(Surroundings, AFullDiskForLogsStopsNobody) {
  write_logs_to("/dev/full");
  for (const auto output : {Rank0Output::kLog, Rank0Output::kLogAndLauncher}) {
    LaunchOptions options;
    options.rank0_output = output;
    EXPECT_EQ(run_job(options), "ok");
  }
}

TEST_F(Surroundings, AFullDiskForLogsHidesNoCause) {
  write_logs_to("/dev/full");
  const auto trial = run_fault({.kind = "kill", .phase = "collective"}, folder_.path());
  ASSERT_TRUE(trial.ok()) << trial.status().to_string();
  EXPECT_EQ(trial->outcome.exit_code, 128 + SIGKILL);
  EXPECT_THAT(trial->outcome.cause, AllOf(HasSubstr("rank 1 "), HasSubstr("SIGKILL")));
}

TEST_F(Surroundings, WhatADeadRunLeftIsNoObstacle) {
  std::filesystem::create_directory(folder_.path() / "logs");
  std::ofstream(folder_.path() / "logs" / "rank.1") << "words of a run before\n";
  std::ofstream(folder_.path() / "checkpoint.tmp.4711") << "half of a file";
  const auto trial = run_fault({.kind = "kill", .phase = "save"}, folder_.path());
  ASSERT_TRUE(trial.ok()) << trial.status().to_string();
  EXPECT_EQ(trial->outcome.first_failed, 1);
  EXPECT_THAT(trial->logs[1], AllOf(HasSubstr("words of a run before"), HasSubstr("breaks at")));
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
// A sanitizer's library must be loaded first.
class ClockJump : public Surroundings {
 protected:
  static LaunchOptions jumping() {
    LaunchOptions options;
    options.environment = {"LD_PRELOAD=" HANJI_CLOCK_JUMP};
    return options;
  }
};

TEST_F(ClockJump, OfTwoDaysIsNotNoticed) { EXPECT_EQ(run_job(jumping()), "ok"); }

TEST_F(ClockJump, OfTwoDaysDelaysNoVerdict) {
  const auto trial = run_fault({.kind = "kill", .phase = "collective"}, folder_.path(), jumping());
  ASSERT_TRUE(trial.ok()) << trial.status().to_string();
  EXPECT_EQ(trial->outcome.first_failed, 1);
  const std::string today = base::format_time(base::wall_ns()).substr(0, 10);
  // Every third reading tells the true day, so only some lines need show another.
  const auto jumped = [&today](const std::string& log) {
    std::istringstream lines(log);
    for (std::string line; std::getline(lines, line);) {
      if (line.starts_with("20") && !line.starts_with(today)) return true;
    }
    return false;
  };
  EXPECT_TRUE(std::ranges::any_of(trial->logs, jumped)) << "the clock did not jump";
  for (const int survivor : {0, 2}) {
    EXPECT_THAT(trial->logs[survivor], HasSubstr("rank 1 (host "));
    EXPECT_GE(trial->seconds_to_see[survivor], 0);
    EXPECT_LT(trial->seconds_to_see[survivor], 10);
  }
}

TEST_F(ClockJump, OfTwoDaysMovesNoDeadline) {
  LaunchOptions options = jumping();
  options.kill_grace = std::chrono::milliseconds(200);
  const auto trial = run_fault({.kind = "stop", .phase = "collective"}, folder_.path(), options);
  ASSERT_TRUE(trial.ok()) << trial.status().to_string();
  EXPECT_EQ(trial->outcome.exit_code, 5);
  EXPECT_THAT(trial->logs[0], AllOf(HasSubstr("rank 1 (host "), HasSubstr("is stopped")));
}
#endif

}  // namespace
}  // namespace hanji::launch
