// Jobs that hang on purpose, seen from outside; and what is no job.
#include "hanji/launch/find_job.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <functional>
#include <thread>

#include "hanji/base/clock.h"
#include "hanji/base/file.h"
#include "hanji/base/json.h"
#include "hanji/launch/flight_record.h"
#include "hanji/shm/hang.h"
#include "hanji/shm/snapshot_text.h"
#include "hanji/test/fault_trial.h"
#include "hanji/test/run_processes.h"
#include "hanji/test/temporary_folder.h"

namespace hanji::launch {
namespace {

using namespace std::chrono_literals;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

std::string hostname() {
  std::array<char, 256> name{};
  ::gethostname(name.data(), name.size() - 1);
  return name.data();
}

struct Seen {
  shm::Snapshot snapshot;
  shm::HangVerdict verdict;
};

class Hanging : public testing::Test {
 protected:
  static int num_waiters(const shm::Snapshot& snapshot) {
    int count = 0;
    for (const shm::GroupSnapshot& group : snapshot.groups) {
      for (const shm::MemberSnapshot& member : group.members)
        count += member.waiting_ns.has_value();
    }
    return count;
  }

  /// Looks at the job that `target` names until so many ranks wait and it has hung for 300 ms, then
  /// ends it.
  void watch(const std::string& target, int waiters, const std::vector<pid_t>& pids) {
    const auto deadline = base::Deadline::after(30s);
    while (!deadline.passed()) {
      const auto job = find_job(target);
      if (job.ok()) {
        seen_.snapshot = shm::take_snapshot(job->segment).or_throw();
        seen_.verdict = shm::judge(seen_.snapshot, 300ms);
        const bool complete = num_waiters(seen_.snapshot) == waiters && seen_.verdict.group >= 0;
        if (seen_.verdict.kind != shm::HangKind::kNone && complete) break;
      }
      std::this_thread::sleep_for(5ms);
    }
    for (const pid_t pid : pids) ::kill(pid, SIGKILL);
  }

  /// Runs a job whose rank 1 hangs by `kind` at step 5, and watches it by what `target` makes of
  /// the ranks' process ids until `waiters` ranks wait.
  void hang(const std::string& kind, int waiters,
            const std::function<std::string(const std::vector<pid_t>&)>& target) {
    std::vector<pid_t> pids;
    std::jthread watcher;
    LaunchOptions options;
    options.signals = Signals::kLeave;
    options.on_event = [&](const RankEvent& event) {
      if (event.kind != RankEventKind::kStarted) return;
      pids.push_back(event.pid);
      if (pids.size() == 3) watcher = std::jthread([&] { watch(target(pids), waiters, pids); });
    };
    const auto trial = test::run_fault({.kind = kind}, folder_.path(), std::move(options));
    if (watcher.joinable()) watcher.join();
    ASSERT_TRUE(trial.ok()) << trial.status().to_string();
    for (size_t rank = 0; rank < 3; ++rank) {
      EXPECT_EQ(seen_.snapshot.ranks.at(rank).pid, pids[rank]);
    }
  }

  test::TemporaryFolder folder_;
  Seen seen_;
};

std::string own_pid(const std::vector<pid_t>&) { return std::to_string(::getpid()); }
std::string pid_of_rank_2(const std::vector<pid_t>& pids) { return std::to_string(pids[2]); }

TEST_F(Hanging, ARankThatStaysAwayIsNamedByTheLaunchersProcess) {
  hang("stay_away", 2, own_pid);
  EXPECT_EQ(seen_.verdict.kind, shm::HangKind::kAbsent) << seen_.verdict.sentence;
  EXPECT_THAT(seen_.verdict.culprits, ElementsAre(1));
  EXPECT_THAT(seen_.verdict.sentence,
              AllOf(StartsWith("rank 1 (process "), HasSubstr("step 5"), HasSubstr("it computes"),
                    HasSubstr("ranks 0 and 2 wait for it in operation 5 of group 0, "
                              "all_reduce(sum, float32, 65536 elements) at faults_rank.cpp:"),
                    HasSubstr("(gradients), for ")));
  EXPECT_THAT(shm::table(seen_.snapshot), HasSubstr("arrived 0, 2; delivered none"));
  EXPECT_EQ(seen_.snapshot.ranks[1].calls.size(), 4u);
}

TEST_F(Hanging, AStoppedRankIsNamedByTheProcessOfAnother) {
  hang("stay_stopped", 2, pid_of_rank_2);
  EXPECT_EQ(seen_.verdict.kind, shm::HangKind::kStopped) << seen_.verdict.sentence;
  EXPECT_THAT(seen_.verdict.culprits, ElementsAre(1));
  EXPECT_THAT(seen_.verdict.sentence, HasSubstr("is stopped (state T)"));
}

TEST_F(Hanging, RanksInDifferentGroupsAreNamedByTheFolder) {
  hang("stray", 3, [&](const std::vector<pid_t>&) {
    const std::string roster = fmt::format(
        R"({{"launcher": {{"pid": {}, "host": "{}"}}, "ranks": []}})", ::getpid(), hostname());
    base::throw_if_error(base::write_file_atomic(folder_.path() / "ranks.json", roster));
    return folder_.path().string();
  });
  EXPECT_EQ(seen_.verdict.kind, shm::HangKind::kDiverged) << seen_.verdict.sentence;
  EXPECT_THAT(seen_.verdict.sentence,
              AllOf(HasSubstr("rank 1 (process "),
                    HasSubstr("waits for ranks 0 and 2 in operation 1 of group 1, barrier() at "
                              "faults_rank.cpp:"),
                    HasSubstr("waits for rank 1 in operation 5 of group 0")));
}

TEST_F(Hanging, AKilledRanksCallsAreKeptBesideTheLogs) {
  const auto trial = test::run_fault({.kind = "kill"}, folder_.path());
  ASSERT_TRUE(trial.ok()) << trial.status().to_string();
  const auto record = read_flight_record(folder_.path());
  ASSERT_TRUE(record.ok()) << record.status().to_string();
  EXPECT_THAT(record->text, AllOf(StartsWith("the job has ended (peer_lost): rank 1 "),
                                  HasSubstr("faults_rank.cpp:")));
  const auto json = base::parse_json(record->json);
  ASSERT_TRUE(json.ok());
  EXPECT_EQ((*json)["verdict"]["kind"], "ended");
  EXPECT_EQ(record->path, folder_.path() / "logs" / "flight.json");
  EXPECT_GT(record->wall_ns, 0);
  int calls_of_the_dead = 0;
  for (const auto& call : (*json)["calls"]) calls_of_the_dead += call["rank"] == 1;
  EXPECT_EQ(calls_of_the_dead, 4);
  EXPECT_EQ(read_flight_record(folder_.path() / "absent").status().code(), Code::kNotFound);
}

class NoJob : public testing::Test {
 protected:
  std::string refusal(const std::string& target, Code code) {
    const auto job = find_job(target);
    EXPECT_EQ(job.status().code(), code) << job.status().to_string();
    return job.status().message();
  }
  void write(const std::string& name, const std::string& text) {
    base::throw_if_error(base::write_file_atomic(folder_.path() / name, text));
  }
  /// Of a process that has ended.
  static pid_t dead_pid() {
    const pid_t pid = ::fork();
    if (pid == 0) ::_exit(0);
    ::waitpid(pid, nullptr, 0);
    return pid;
  }
  test::TemporaryFolder folder_;
};

TEST_F(NoJob, AProcessThatIsNoneIsRefused) {
  EXPECT_THAT(refusal(std::to_string(dead_pid()), Code::kNotFound), HasSubstr("no process"));
  EXPECT_THAT(refusal("99999999999999999999", Code::kInvalidArgument), HasSubstr("no process id"));
  EXPECT_THAT(refusal("0", Code::kInvalidArgument), HasSubstr("no process id"));
  EXPECT_THAT(refusal("", Code::kInvalidArgument), HasSubstr("give the folder"));
}

TEST_F(NoJob, AForeignProcessIsRefusedByName) {
  EXPECT_THAT(refusal(std::to_string(::getpid()), Code::kInvalidArgument),
              AllOf(HasSubstr("hanji_launch"), HasSubstr("no launcher and no rank")));
}

TEST_F(NoJob, AnotherUsersProcessIsRefused) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  const auto answers = test::run_processes(1, [](int) {
    const pid_t parent = ::getppid();
    if (::setgid(65534) != 0 || ::setuid(65534) != 0) return std::string("permission denied: skip");
    return find_job(std::to_string(parent)).status().to_string();
  });
  EXPECT_THAT(answers[0], HasSubstr("permission denied"));
}

TEST_F(NoJob, ADamagedFlightRecordIsRefused) {
  write("flight.json", "{");
  EXPECT_EQ(read_flight_record(folder_.path()).status().code(), Code::kCorrupt);
  write("flight.json", R"({"text": 3, "wall_ns": 1})");
  EXPECT_THAT(read_flight_record(folder_.path()).status().message(), HasSubstr("no flight record"));
}

TEST_F(NoJob, FoldersAreToldApart) {
  const std::string folder = folder_.path().string();
  EXPECT_THAT(refusal(folder + "/absent", Code::kNotFound), HasSubstr("no such folder"));
  EXPECT_THAT(refusal(folder, Code::kNotFound), HasSubstr("no run lives in this folder"));
  write("plan.json", "{}");
  EXPECT_THAT(refusal(folder, Code::kNotFound), HasSubstr("this run has ended"));
  write("ranks.json", "{");
  EXPECT_THAT(refusal(folder, Code::kCorrupt), HasSubstr("ranks.json"));
  write("ranks.json", "[1]");
  EXPECT_THAT(refusal(folder, Code::kCorrupt), HasSubstr("names no process"));
  write("ranks.json", fmt::format(R"({{"launcher": {{"pid": {}}}, "ranks": 3}})", dead_pid()));
  EXPECT_THAT(refusal(folder, Code::kNotFound),
              AllOf(HasSubstr("this run was killed"),
                    HasSubstr(fmt::format("`hanji train --resume --out {}` begins it", folder))));
  base::throw_if_error(base::make_directories(folder_.path() / "checkpoints" / "step_00000002"));
  EXPECT_THAT(refusal(folder, Code::kNotFound), HasSubstr("goes on from its last good checkpoint"));
  write("ranks.json", R"({"launcher": {"pid": 1, "host": "elsewhere.example"}})");
  EXPECT_THAT(refusal(folder, Code::kInvalidArgument), HasSubstr("on host elsewhere.example"));
}

}  // namespace
}  // namespace hanji::launch
