#include "hanji/launch/launcher.h"

#include <dirent.h>
#include <gmock/gmock.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "hanji/base/file.h"
#include "hanji/base/stop_signals.h"
#include "hanji/launch/find_job.h"
#include "hanji/launch/run.h"
#include "hanji/test/eventually.h"
#include "hanji/test/run_processes.h"
#include "hanji/test/temporary_folder.h"
#include "hanji/topology/machine.h"
#include "hanji/trace/recorder.h"

namespace hanji::launch {
namespace {

using namespace std::chrono_literals;
using test::eventually;
using testing::AllOf;
using testing::EndsWith;
using testing::HasSubstr;

int num_descriptors() {
  const auto folder = std::filesystem::directory_iterator("/proc/self/fd");
  return static_cast<int>(std::distance(begin(folder), end(folder)));
}

std::string text_in(const std::filesystem::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// State letter in /proc: 'Z' for a zombie, ' ' for a process that is gone.
char state_of(pid_t pid) {
  const std::string text = text_in("/proc/" + std::to_string(pid) + "/stat");
  const size_t end = text.rfind(')');
  return end == text.npos ? ' ' : text[end + 2];
}

class Launcher : public testing::Test {
 protected:
  /// `script` for sh, with $RANK and, in $FOLDER, this test's folder.
  LaunchOptions options(const std::string& script, int ranks = 2) {
    LaunchOptions options;
    options.command = {"sh", "-c", script};
    options.ranks = ranks;
    options.log_directory = folder_.path() / "logs";
    options.environment = {"FOLDER=" + folder_.path().string()};
    options.segment.heap_bytes_per_rank = 1 << 20;
    options.segment.trace_events = 64;
    options.on_event = [this](const RankEvent& event) { events_.push_back(event); };
    return options;
  }
  std::string log(int rank) const {
    return text_in(folder_.path() / "logs" / ("rank." + std::to_string(rank)));
  }
  std::filesystem::path file(const std::string& name) const { return folder_.path() / name; }
  bool all_ready(int ranks) const {
    return eventually([&] {
      for (int rank = 0; rank < ranks; ++rank) {
        if (!std::filesystem::exists(file("ready." + std::to_string(rank)))) return false;
      }
      return true;
    });
  }
  /// Sends `signals` to this process, one after another, once all ranks are ready.
  void signal_when_ready(LaunchOptions& options, std::vector<int> signals) {
    options.on_event = [this, signals, ranks = options.ranks, sent = size_t{0},
                        started = 0](const RankEvent& event) mutable {
      events_.push_back(event);
      started += event.kind == RankEventKind::kStarted;
      const bool first = event.kind == RankEventKind::kStarted && started == ranks;
      const bool next = event.kind == RankEventKind::kForwarded && sent < signals.size();
      EXPECT_TRUE(!first || all_ready(ranks));
      if (first || next) ::kill(::getpid(), signals[sent++]);
    };
  }
  const RankEvent* event_of(RankEventKind kind) const {
    const auto found = std::find_if(events_.begin(), events_.end(),
                                    [&](const RankEvent& event) { return event.kind == kind; });
    return found == events_.end() ? nullptr : &*found;
  }

  test::TemporaryFolder folder_;
  std::vector<RankEvent> events_;
};

/// While it lives, a signal that the starter of the test may ignore is not ignored.
class DefaultDisposition {
 public:
  explicit DefaultDisposition(int signal) : signal_(signal), before_(::signal(signal, SIG_DFL)) {}
  ~DefaultDisposition() { ::signal(signal_, before_); }

 private:
  int signal_;
  sighandler_t before_;
};

/// Sets a variable of this process for the time of a test.
class ScopedVariable {
 public:
  ScopedVariable(const char* name, const char* value) : name_(name) { ::setenv(name, value, 1); }
  ~ScopedVariable() { ::unsetenv(name_); }

 private:
  const char* name_;
};

TEST_F(Launcher, EveryRankRunsTheCommandAndKnowsItsPlace) {
  const auto outcome = launch(options("echo $RANK $WORLD_SIZE $LOCAL_RANK; echo words >&2", 3));
  ASSERT_TRUE(outcome.ok()) << outcome.status().to_string();
  EXPECT_EQ(outcome->exit_code, 0);
  EXPECT_EQ(outcome->first_failed, -1);
  EXPECT_EQ(log(0), "0 3 0\nwords\n");
  EXPECT_EQ(log(2), "2 3 2\nwords\n");
  EXPECT_NE(event_of(RankEventKind::kEnded), nullptr);
}

TEST_F(Launcher, AnOuterLaunchersIdentityIsNotInherited) {
  const ScopedVariable outer("OMPI_COMM_WORLD_RANK", "7");
  const ScopedVariable stale("WORLD_SIZE", "9");
  ASSERT_TRUE(launch(options("echo [$OMPI_COMM_WORLD_RANK] $WORLD_SIZE")).ok());
  EXPECT_EQ(log(1), "[] 2\n");
}

TEST_F(Launcher, ThreadsFollowTheMaskUnlessTheUserDecides) {
  cpu_set_t mask;
  ASSERT_EQ(::sched_getaffinity(0, sizeof(mask), &mask), 0);
  int cpu = 0;
  while (!CPU_ISSET(cpu, &mask)) ++cpu;
  LaunchOptions pinned = options("grep Cpus_allowed_list /proc/self/status; echo $OMP_NUM_THREADS");
  pinned.cpus = {{cpu}, {cpu}};
  ASSERT_TRUE(launch(pinned).ok());
  EXPECT_THAT(log(1), AllOf(HasSubstr("Cpus_allowed_list:\t" + std::to_string(cpu) + "\n"),
                            HasSubstr("\n1\n")));
  const ScopedVariable user("OMP_NUM_THREADS", "5");
  ASSERT_TRUE(launch(pinned).ok());
  EXPECT_THAT(log(1), HasSubstr("\n5\n"));
}

TEST_F(Launcher, FirstFailingRankGivesTheCodeAndTheOthersAreTerminated) {
  const auto outcome = launch(options("test $RANK = 1 && exit 3; exec sleep 1000", 3));
  ASSERT_TRUE(outcome.ok());
  EXPECT_EQ(outcome->exit_code, 3);
  EXPECT_EQ(outcome->first_failed, 1);
  EXPECT_FALSE(outcome->ranks[1].secondary);
  for (const int rank : {0, 2}) {
    EXPECT_EQ(outcome->ranks[rank].signal, SIGTERM);
    EXPECT_TRUE(outcome->ranks[rank].secondary);
  }
  EXPECT_NE(event_of(RankEventKind::kTerminated), nullptr);
}

TEST_F(Launcher, AKilledRankIsNamedWithItsProcessAndSignal) {
  const auto outcome = launch(options("test $RANK = 1 && kill -9 $$; exec sleep 1000"));
  ASSERT_TRUE(outcome.ok());
  EXPECT_EQ(outcome->exit_code, 128 + SIGKILL);
  const RankEvent* failed = event_of(RankEventKind::kFailed);
  ASSERT_NE(failed, nullptr);
  EXPECT_EQ(failed->rank, 1);
  EXPECT_THAT(failed->text, AllOf(HasSubstr("rank 1 (host "), HasSubstr("was killed by SIGKILL"),
                                  HasSubstr("process " + std::to_string(outcome->ranks[1].pid))));
}

TEST_F(Launcher, SurvivorsHaveTimeToNameTheDeadRankThemselves) {
  LaunchOptions patient = options("test $RANK = 1 && kill -9 $$; sleep 0.2; echo verdict; exit 6");
  patient.verdict_time = 30s;
  const auto outcome = launch(patient);
  ASSERT_TRUE(outcome.ok());
  EXPECT_EQ(outcome->exit_code, 128 + SIGKILL);
  EXPECT_EQ(log(0), "verdict\n");
  EXPECT_EQ(event_of(RankEventKind::kTerminated), nullptr);
}

TEST_F(Launcher, OthersMayGoOnAfterADeath) {
  LaunchOptions continued =
      options("if [ $RANK = 1 ]; then kill -9 $$; fi; sleep 0.3; echo went on; test $RANK != 2", 3);
  continued.on_death = OnDeath::kContinue;
  continued.verdict_time = 1ms;
  const Outcome outcome = launch(continued).or_throw();
  EXPECT_EQ(outcome.exit_code, 128 + SIGKILL);
  EXPECT_EQ(outcome.first_failed, 1);
  EXPECT_EQ(log(0), "went on\n");
  EXPECT_EQ(log(2), "went on\n");
  EXPECT_EQ(outcome.ranks[0].exit_code, 0);
  EXPECT_TRUE(outcome.ranks[2].secondary);
  EXPECT_EQ(event_of(RankEventKind::kTerminated), nullptr);
  ASSERT_NE(event_of(RankEventKind::kCause), nullptr);
  EXPECT_THAT(event_of(RankEventKind::kCause)->text,
              HasSubstr("1 of 3 ranks ended as they should"));
  continued.hosts = MultiHost{};
  EXPECT_EQ(launch(continued).status().code(), Code::kUnsupported);
}

TEST_F(Launcher, OfDeathsSeenAtOnceTheCauseComesFirst) {
  LaunchOptions both = options("test $RANK = 1 && kill -9 $$; exit 6");
  std::vector<pid_t> pids;
  both.on_event = [&](const RankEvent& event) {
    if (event.kind != RankEventKind::kStarted) return;
    pids.push_back(event.pid);
    if (pids.size() < 2) return;
    for (const pid_t pid : pids) {
      EXPECT_TRUE(eventually([&] { return state_of(pid) == 'Z'; }));
    }
  };
  const auto outcome = launch(both);
  ASSERT_TRUE(outcome.ok());
  EXPECT_EQ(outcome->first_failed, 1);
  EXPECT_TRUE(outcome->ranks[0].secondary);
}

TEST_F(Launcher, TheCauseMayBeSeenAfterWhoDiedOfIt) {
  LaunchOptions late = options("test $RANK = 0 && exit 6; sleep 0.3; exit 3");
  late.verdict_time = 30s;
  const auto outcome = launch(late);
  ASSERT_TRUE(outcome.ok());
  EXPECT_EQ(outcome->first_failed, 1);
  EXPECT_EQ(outcome->exit_code, 3);
  EXPECT_TRUE(outcome->ranks[0].secondary);
  EXPECT_FALSE(outcome->ranks[1].secondary);
}

TEST_F(Launcher, WhoIgnoresTermIsKilledAfterTheGrace) {
  LaunchOptions stubborn = options(
      "trap '' TERM; touch $FOLDER/ready.$RANK; test $RANK = 0 && while :; do sleep 0.05; done; "
      "until test -e $FOLDER/ready.0; do sleep 0.01; done; exit 3");
  stubborn.kill_grace = 100ms;
  const auto outcome = launch(stubborn);
  ASSERT_TRUE(outcome.ok());
  EXPECT_EQ(outcome->exit_code, 3);
  EXPECT_EQ(outcome->ranks[0].signal, SIGKILL);
  EXPECT_NE(event_of(RankEventKind::kKilled), nullptr);
}

constexpr const char* kStopsOnTerm =
    "trap 'echo told; exit 75' TERM HUP USR1 USR2 XCPU; trap 'exit 130' INT; touch "
    "$FOLDER/ready.$RANK; "
    "while :; do sleep 0.02; done";

TEST_F(Launcher, ASignalIsForwardedOnceAndRanksEndInTheirOwnWay) {
  for (const int signal : {SIGTERM, SIGUSR1, SIGHUP, SIGUSR2, SIGXCPU}) {
    const DefaultDisposition whatever_started_the_test(signal);
    LaunchOptions stoppable = options(kStopsOnTerm);
    signal_when_ready(stoppable, {signal, signal});
    const auto outcome = launch(stoppable);
    ASSERT_TRUE(outcome.ok());
    EXPECT_EQ(outcome->exit_code, 75);
    EXPECT_THAT(outcome->cause, EndsWith(" passed on to all ranks")) << "no rank has failed";
    EXPECT_EQ(event_of(RankEventKind::kCause), nullptr);
    EXPECT_THAT(log(0), EndsWith("told\n"));  // after what sh says of its own sleep
    EXPECT_EQ(event_of(RankEventKind::kKilled), nullptr);
    for (const char* made : {"logs", "ready.0", "ready.1"}) std::filesystem::remove_all(file(made));
  }
}

TEST_F(Launcher, AHangupThatTheStarterIgnoresStaysIgnored) {
  const DefaultDisposition before(SIGHUP);
  ::signal(SIGHUP, SIG_IGN);
  const auto outcome = launch(options("kill -HUP $PPID; kill -HUP $$; echo lives"));
  ASSERT_TRUE(outcome.ok());
  EXPECT_EQ(outcome->exit_code, 0);
  EXPECT_EQ(outcome->stop_signal, 0);
  EXPECT_EQ(log(1), "lives\n");
}

TEST_F(Launcher, StopSignalsArePendingFromTheFirstInstructionOfARankThatReadsThem) {
  const base::HeldStopSignals of_the_launcher;  // which no rank inherits
  for (const bool saves : {true, false}) {
    LaunchOptions held = options("kill -TERM $$; echo lives");
    held.saves_at_stop = saves;
    held.signals = Signals::kLeave;
    const auto outcome = launch(held);
    ASSERT_TRUE(outcome.ok());
    EXPECT_EQ(outcome->exit_code, saves ? 0 : 128 + SIGTERM);
    EXPECT_EQ(log(0), saves ? "lives\n" : "");
    std::filesystem::remove_all(file("logs"));
  }
}

TEST_F(Launcher, ARankThatLosesAPeerToAForwardedSignalIsNoFailure) {
  LaunchOptions mixed = options(
      "touch $FOLDER/ready.$RANK; test $RANK = 0 || trap 'sleep 0.2; exit 6' TERM; "
      "while :; do sleep 0.05; done");
  signal_when_ready(mixed, {SIGTERM});
  const auto outcome = launch(mixed);
  ASSERT_TRUE(outcome.ok());
  EXPECT_EQ(outcome->exit_code, 128 + SIGTERM);
  EXPECT_EQ(outcome->first_failed, -1);
}

TEST_F(Launcher, ARankThatIsKilledBeforeItsFirstStepHadNothingToSave) {
  // Where sh waits for a child, it clears the mask that it was started with.
  LaunchOptions slow = options(": > $FOLDER/ready.$RANK; exec sleep 60");
  slow.saves_at_stop = true;
  slow.stop_grace = 100ms;
  signal_when_ready(slow, {SIGTERM});
  const auto outcome = launch(slow);
  ASSERT_TRUE(outcome.ok());
  EXPECT_EQ(outcome->exit_code, 75);
}

TEST_F(Launcher, ASecondInterruptKills) {
  LaunchOptions deaf =
      options("trap '' INT; touch $FOLDER/ready.$RANK; while :; do sleep 0.05; done");
  signal_when_ready(deaf, {SIGINT, SIGINT});
  const auto outcome = launch(deaf);
  ASSERT_TRUE(outcome.ok());
  EXPECT_EQ(outcome->exit_code, 128 + SIGINT);
  EXPECT_EQ(outcome->ranks[0].signal, SIGKILL);
  EXPECT_THAT(event_of(RankEventKind::kKilled)->text, HasSubstr("second SIGINT"));
}

TEST_F(Launcher, WhoDoesNotStopOnASignalIsKilledAfterTheGrace) {
  LaunchOptions deaf =
      options("trap '' TERM; touch $FOLDER/ready.$RANK; while :; do sleep 0.05; done");
  signal_when_ready(deaf, {SIGTERM});
  deaf.stop_grace = 100ms;
  const auto outcome = launch(deaf);
  ASSERT_TRUE(outcome.ok());
  EXPECT_EQ(outcome->exit_code, 128 + SIGTERM);
  EXPECT_EQ(outcome->ranks[1].signal, SIGKILL);
}

TEST_F(Launcher, DispositionsAreRestored) {
  struct sigaction before {};
  struct sigaction after {};
  ::sigaction(SIGTERM, nullptr, &before);
  ASSERT_TRUE(launch(options("true")).ok());
  ::sigaction(SIGTERM, nullptr, &after);
  EXPECT_EQ(before.sa_handler, after.sa_handler);
}

TEST_F(Launcher, OneLaunchAtATimeForwardsSignals) {
  LaunchOptions outer = options("true", 1);
  Status second;
  outer.on_event = [&](const RankEvent& event) {
    if (event.kind != RankEventKind::kStarted) return;
    LaunchOptions inner = options("true", 1);
    inner.on_event = nullptr;
    second = launch(inner).status();
    inner.signals = Signals::kLeave;
    EXPECT_TRUE(launch(inner).ok());
  };
  ASSERT_TRUE(launch(outer).ok());
  EXPECT_EQ(second.code(), Code::kInvalidArgument);
}

TEST_F(Launcher, NothingStaysBehind) {
  const auto survivors = [&] {
    return text_in("/proc/self/task/" + std::to_string(::gettid()) + "/children");
  };
  const int descriptors = num_descriptors();
  const auto outcome = launch(options("sleep 1000 & echo $! > $FOLDER/child.$RANK; exit $RANK"));
  ASSERT_TRUE(outcome.ok());
  EXPECT_EQ(outcome->exit_code, 1);
  EXPECT_EQ(num_descriptors(), descriptors);
  EXPECT_EQ(survivors(), "");
  for (const char* child : {"child.0", "child.1"}) {
    const pid_t pid = std::stoi(text_in(file(child)));
    EXPECT_TRUE(eventually([&] { return state_of(pid) == ' ' || state_of(pid) == 'Z'; }));
  }
}

TEST_F(Launcher, RanksDieWithTheirLauncher) {
  LaunchOptions endless = options(
      "echo $$ > $FOLDER/pid.$RANK; touch $FOLDER/ready.$RANK; "
      "exec sleep 1000");
  const auto answers = test::run_processes(2, [&](int i) -> std::string {
    if (i == 0) {
      std::ofstream(file("launcher")) << ::getpid() << std::flush;
      return launch(endless).status().to_string();
    }
    if (!all_ready(2)) return "not started";
    ::kill(std::stoi(text_in(file("launcher"))), SIGKILL);
    return "killed";
  });
  EXPECT_EQ(answers[0], "(killed by signal 9)");
  for (const char* rank : {"pid.0", "pid.1"}) {
    const pid_t pid = std::stoi(text_in(file(rank)));
    EXPECT_TRUE(eventually([&] { return state_of(pid) == ' ' || state_of(pid) == 'Z'; }));
  }
}

TEST_F(Launcher, AProgramThatIsNotThereIsNotFound) {
  LaunchOptions missing = options("");
  missing.command = {"no_such_program_of_hanji"};
  const int descriptors = num_descriptors();
  const auto outcome = launch(missing);
  EXPECT_EQ(outcome.status().code(), Code::kNotFound);
  EXPECT_THAT(outcome.status().message(), HasSubstr("no_such_program_of_hanji"));
  EXPECT_EQ(num_descriptors(), descriptors);
}

TEST_F(Launcher, WhatCannotBeStartedIsRefused) {
  LaunchOptions pinned = options("true");
  pinned.cpus = {{1023}, {1023}};
  EXPECT_THAT(launch(pinned).status().message(), HasSubstr("pin itself"));
  EXPECT_EQ(launch(pinned).status().code(), Code::kInvalidArgument);
  pinned.cpus = {{0}};
  EXPECT_THAT(launch(pinned).status().message(), HasSubstr("for 1 ranks, but 2"));
  EXPECT_EQ(launch(options("true", 0)).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(launch(LaunchOptions{}).status().code(), Code::kInvalidArgument);
}

TEST_F(Launcher, OutputOfRankZeroIsCopiedWhenAsked) {
  LaunchOptions loud = options("echo said by $RANK; echo shouted by $RANK >&2");
  loud.rank0_output = Rank0Output::kLogAndLauncher;
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  const auto outcome = launch(loud);
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "said by 0\n");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "shouted by 0\n");
  ASSERT_TRUE(outcome.ok());
  EXPECT_THAT(log(0), AllOf(HasSubstr("said by 0\n"), HasSubstr("shouted by 0\n")));
  EXPECT_THAT(log(1), AllOf(HasSubstr("said by 1\n"), HasSubstr("shouted by 1\n")));
}

TEST_F(Launcher, OutputOfRankZeroMayGoToTheLauncherOnly) {
  LaunchOptions direct = options("echo said by $RANK");
  direct.rank0_output = Rank0Output::kLauncher;
  testing::internal::CaptureStdout();
  const auto outcome = launch(direct);
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "said by 0\n");
  ASSERT_TRUE(outcome.ok());
  EXPECT_EQ(log(0), "");
}

TEST_F(Launcher, ForkedRanksReportTheirStatus) {
  LaunchOptions forked = options("");
  forked.signals = Signals::kLeave;
  const int descriptors = num_descriptors();
  const auto outcome = fork_ranks(forked, [&](Inherited inherited) -> Status {
    if (inherited.endpoints.size != 2) return base::internal("wrong size");
    if (!inherited.endpoints.pidfds[1 - inherited.endpoints.rank].valid()) {
      return base::internal("no peer");
    }
    if (inherited.endpoints.rank == 0) return {};
    return base::mismatch("seven is not eight");
  });
  ASSERT_TRUE(outcome.ok()) << outcome.status().to_string();
  EXPECT_EQ(outcome->first_failed, 1);
  EXPECT_EQ(outcome->ranks[1].report.code(), Code::kMismatch);
  EXPECT_EQ(outcome->ranks[1].report.message(), "seven is not eight");
  EXPECT_EQ(num_descriptors(), descriptors);
}

TEST_F(Launcher, TheStepOfADeadRankIsReadFromItsRing) {
  LaunchOptions forked = options("");
  forked.signals = Signals::kLeave;
  const auto outcome = fork_ranks(forked, [](Inherited inherited) -> Status {
    HANJI_ASSIGN_OR_RETURN(
        const auto segment,
        shm::Segment::attach(std::move(inherited.endpoints.segment), inherited.build_id,
                             plan_hash(inherited.plan_json)));
    const int rank = inherited.endpoints.rank;
    trace::Recorder::format(segment->trace_memory(rank), rank, 2).set_step(57);
    if (rank == 1) ::raise(SIGKILL);
    return {};
  });
  ASSERT_TRUE(outcome.ok()) << outcome.status().to_string();
  EXPECT_THAT(event_of(RankEventKind::kFailed)->text,
              AllOf(HasSubstr("rank 1 "), HasSubstr("step 57"), HasSubstr("SIGKILL")));
}

TEST_F(Launcher, RunProgramGivesEveryRankCoresOfItsOwnWhileThereAreEnough) {
  const auto machine = topology::read_machine();
  ASSERT_TRUE(machine.ok());
  RunOptions run;
  run.command = {"sh", "-c", "echo $WORLD_SIZE $OMP_NUM_THREADS"};
  run.log_directory = folder_.path() / "logs";
  for (const int ranks : {1, 3}) {  // each reserves 64 GiB of addresses; TSan has 1.5 TiB
    run.ranks = ranks;
    testing::internal::CaptureStdout();
    const auto outcome = run_program(run);
    const std::string said = testing::internal::GetCapturedStdout();
    ASSERT_TRUE(outcome.ok()) << outcome.status().to_string();
    const auto cpus = topology::cpus_per_rank(*machine, ranks);
    const size_t threads = cpus.empty() ? 1 : cpus[0].size();
    EXPECT_EQ(said, std::to_string(ranks) + " " + std::to_string(threads) + "\n");
  }
}

TEST_F(Launcher, RunProgramLetsThreadsSleepWhereTheyShareCpusUnlessTheUserDecides) {
  for (const char* name : {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME"}) ::unsetenv(name);
  RunOptions run;
  run.command = {"sh", "-c", "echo [$OMP_WAIT_POLICY] [$KMP_BLOCKTIME] [$GOMP_SPINCOUNT]"};
  run.log_directory = folder_.path() / "logs";
  run.on_event = [this](const RankEvent& event) { events_.push_back(event); };
  run.ranks = 1;
  const auto said = [&] {
    events_.clear();
    testing::internal::CaptureStdout();
    const auto outcome = run_program(run);
    EXPECT_TRUE(outcome.ok()) << outcome.status().to_string();
    return testing::internal::GetCapturedStdout();
  };
  const ScopedVariable too_many("OMP_NUM_THREADS", "4096,2");
  EXPECT_EQ(said(), "[passive] [0] []\n");
  ASSERT_NE(event_of(RankEventKind::kWaits), nullptr);
  EXPECT_THAT(event_of(RankEventKind::kWaits)->text,
              AllOf(HasSubstr("sleep while they wait"), HasSubstr("4096 threads")));
  {
    const ScopedVariable user("GOMP_SPINCOUNT", "7");
    EXPECT_EQ(said(), "[] [] [7]\n");
    EXPECT_EQ(event_of(RankEventKind::kWaits), nullptr);
  }
  const ScopedVariable one("OMP_NUM_THREADS", "1");
  EXPECT_EQ(said(), "[] [] []\n");
}

TEST_F(Launcher, RunProgramIsFoundByItsFolderOfLogsWhileItLives) {
  const auto logs = folder_.path() / "logs";
  RunOptions run;
  run.command = {"sh", "-c",
                 "while [ ! -e " + (folder_.path() / "go").string() + " ]; do sleep 0.01; done"};
  run.ranks = 2;
  run.log_directory = logs;
  std::jthread looker([&] {
    EXPECT_TRUE(eventually([&] {
      const auto roster = base::read_file(logs / "ranks.json");
      return roster.ok() && roster->find("\"rank\": 1") != std::string::npos;
    }));
    const auto job = find_job(logs.string());
    EXPECT_TRUE(job.ok()) << job.status().to_string();
    std::ofstream(folder_.path() / "go").put('g');
  });
  const auto outcome = run_program(run);
  ASSERT_TRUE(outcome.ok()) << outcome.status().to_string();
  EXPECT_FALSE(std::filesystem::exists(logs / "ranks.json"));
}

TEST_F(Launcher, ALostFlightRecordIsTold) {
  const auto logs = folder_.path() / "logs";
  std::filesystem::create_directories(logs / "flight.json" / "in the way");
  RunOptions run;
  run.command = {"sh", "-c", "exit 3"};
  run.ranks = 1;
  run.log_directory = logs;
  std::vector<RankEvent> events;
  run.on_event = [&](const RankEvent& event) { events.push_back(event); };
  const auto outcome = run_program(run);
  ASSERT_TRUE(outcome.ok()) << outcome.status().to_string();
  EXPECT_EQ(outcome->exit_code, 3);
  ASSERT_EQ(events.back().kind, RankEventKind::kNotKept);
  EXPECT_THAT(events.back().text, AllOf(HasSubstr("last calls"), HasSubstr("flight.json")));
}

TEST_F(Launcher, RunProgramRefusesWhatIsNoNumberOfRanks) {
  RunOptions run;
  run.command = {"true"};
  for (const int ranks : {-1, 65}) {  // a segment has 64 seats
    run.ranks = ranks;
    EXPECT_EQ(run_program(run).status().code(), Code::kInvalidArgument);
  }
}

}  // namespace
}  // namespace hanji::launch
