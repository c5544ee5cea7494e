#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <fstream>
#include <iostream>
#include <thread>

#include "hanji/base/clock.h"
#include "hanji/base/text.h"
#include "hanji/base/units.h"
#include "hanji/cli/exit_code.h"
#include "hanji/cli/live_screen.h"
#include "hanji/cli/verbs.h"
#include "hanji/launch/find_job.h"
#include "hanji/launch/flight_record.h"
#include "hanji/report/live_job.h"
#include "hanji/report/run_report.h"
#include "hanji/shm/hang.h"
#include "hanji/train/stop_signal.h"

namespace hanji::cli {
namespace {

constexpr int64_t kFrame = 1'000'000'000;  // ns
constexpr auto kPoll = std::chrono::milliseconds(50);

struct TopOptions {
  std::string target;
  bool once = false;
};

/// Bytes of a process in memory; nothing of one that is gone.
std::optional<int64_t> resident_bytes(int pid) {
  std::ifstream file(fmt::format("/proc/{}/statm", pid));
  int64_t all = 0, resident = 0;
  if (!(file >> all >> resident)) return std::nullopt;
  return resident * ::sysconf(_SC_PAGESIZE);
}

/// The folder of a run of `hanji train`, as the command line of a rank names it; empty: another program.
std::filesystem::path folder_of(int pid) {
  std::ifstream file(fmt::format("/proc/{}/cmdline", pid), std::ios::binary);
  std::string word, before;
  while (std::getline(file, word, '\0')) {
    if (before == "--out") return word;
    before = word;
  }
  return {};
}

/// What a rank does with its peers: the call that it waits in, else the last one.
std::string call_of(const shm::Snapshot& snapshot, const shm::RankSnapshot& rank) {
  const auto ago = [&](int64_t ns) {
    return base::format_seconds(static_cast<double>(std::max<int64_t>(0, snapshot.taken_ns - ns)) /
                                1e9);
  };
  for (const shm::GroupSnapshot& group : snapshot.groups) {
    for (const shm::MemberSnapshot& member : group.members) {
      if (member.rank != rank.rank || !member.waiting_ns || !member.call) continue;
      return fmt::format("{}, waits {}", member.call->routine, ago(*member.waiting_ns));
    }
  }
  if (rank.calls.empty()) return "";
  return fmt::format("{}, {} ago", rank.calls.back().routine, ago(rank.calls.back().end_ns));
}

std::string state_of(const shm::RankSnapshot& rank) {
  if (rank.presence == shm::RankPresence::kNeverCame) return "never came";
  if (rank.presence == shm::RankPresence::kLeft) return "left";
  return rank.alive() ? std::string(1, rank.state) : "dead";
}

/// A job that is watched, with what is known of its folder.
class Watched {
 public:
  explicit Watched(std::string target) : target_(std::move(target)) {
    if (std::filesystem::exists(std::filesystem::path(target_) / "plan.json")) open(target_);
  }

  /// What is seen now.
  /// Errors  those of launch::find_job(); kNotFound once it has ended.
  Result<report::LiveJob> look() {
    HANJI_ASSIGN_OR_RETURN(const launch::FoundJob found, launch::find_job(target_));
    HANJI_ASSIGN_OR_RETURN(const shm::Snapshot snapshot, shm::take_snapshot(found.segment, 1));
    if (std::ranges::none_of(snapshot.ranks, &shm::RankSnapshot::alive) && was_seen_) {
      return base::not_found(target_ + ": no rank of this job lives any more");
    }
    was_seen_ = true;
    if (!run_ && !snapshot.ranks.empty()) open(folder_of(snapshot.ranks.front().pid));
    report::LiveJob job{.name = run_ ? run_->folder.string() : "process " + target_};
    if (run_) {
      job.what = fmt::format("{}, {}", run_->plan.config.model.preset,
                             base::counted(run_->plan.ranks, "rank"));
      job.num_steps = run_->plan.config.train.steps;
    }
    for (const shm::OtherHost& host : snapshot.other_hosts) {
      job.what += fmt::format("{}{} on {} not seen from here", job.what.empty() ? "" : ", ",
                              host.num_ranks > 0 ? base::counted(host.num_ranks, "rank") : "ranks",
                              host.name.empty() ? "other hosts" : host.name);
    }
    for (const shm::RankSnapshot& rank : snapshot.ranks) job.ranks.push_back(seen(snapshot, rank));
    const shm::HangVerdict verdict = shm::judge(snapshot);
    if (verdict.kind != shm::HangKind::kNone) job.verdict = verdict.sentence;
    return job;
  }

  /// How it ended: by the report of its folder, or by what its launcher has left there.
  Result<std::string> end_of() const {
    if (!run_) return base::not_found(target_ + ": this job has ended");
    const auto run = report::read_run(run_->folder);
    if (run.ok() && !run->summary.empty()) {
      return fmt::format("{} has ended: {}", run_->folder.string(), report::verdict_lines(*run));
    }
    const auto record = launch::read_flight_record(run_->folder);
    if (record.ok()) return fmt::format("{} has failed: {}\n", run_->folder.string(), record->text);
    return fmt::format("{} has ended without a summary; its logs say why: {}\n",
                       run_->folder.string(), (run_->folder / "logs").string());
  }

  bool was_seen() const { return was_seen_; }

 private:
  struct Run {
    std::filesystem::path folder;
    plan::Plan plan;
  };

  void open(const std::filesystem::path& folder) {
    if (folder.empty()) return;
    const auto run = report::read_run(folder);
    if (run.ok()) run_ = Run{folder, run->plan};
  }

  report::LiveRank seen(const shm::Snapshot& snapshot, const shm::RankSnapshot& rank) const {
    report::LiveRank live{.rank = rank.rank, .state = state_of(rank)};
    live.step = rank.step > 0 || run_ ? rank.step : -1;
    live.phase = rank.spans;
    live.call = call_of(snapshot, rank);
    if (rank.alive()) live.resident_bytes = resident_bytes(rank.pid);
    if (run_) live.recent = report::recent_account(run_->folder / report::account_file(rank.rank));
    return live;
  }

  std::string target_;
  std::optional<Run> run_;
  bool was_seen_ = false;
};

int print_end(const Watched& job, const Status& why) {
  const auto end = job.end_of();
  if (end.ok()) {
    std::cout << base::wrap(*end, LiveScreen::columns(), 2) << std::flush;
    return 0;
  }
  if (job.was_seen()) {
    std::cout << end.status().message() << "\n";
    return 0;
  }
  std::cerr << "hanji: " << why.message() << "\n";
  return exit_code(why.code());
}

/// Until the next page is due, the terminal has another size, or a signal comes, which is returned.
std::optional<int> wait(train::StopSignal& signals, int64_t until_ns) {
  const int columns = LiveScreen::columns(), rows = LiveScreen::rows();
  while (base::now_ns() < until_ns) {
    if (const auto signal = signals.poll()) return signal;
    if (LiveScreen::columns() != columns || LiveScreen::rows() != rows) return std::nullopt;
    std::this_thread::sleep_for(kPoll);
  }
  return signals.poll();
}

int watch(const TopOptions& options) {
  train::StopSignal signals = train::StopSignal::create().or_throw();
  const bool once = options.once || !LiveScreen::is_terminal();
  Watched watched(options.target);
  LiveScreen screen;
  while (true) {
    const int64_t begin_ns = base::now_ns();
    const auto job = watched.look();
    if (!job.ok()) return print_end(watched, job.status());
    screen.draw(report::live_page(*job, LiveScreen::columns(),
                                  once ? std::numeric_limits<int>::max() : LiveScreen::rows() - 1));
    if (once) return 0;
    if (const auto signal = wait(signals, begin_ns + kFrame)) {
      return *signal == SIGINT ? 0 : stop_code(*signal);  // INT is how one leaves
    }
  }
}

}  // namespace

void add_top(Verb command) {
  const Verb verb =
      command.add_verb("top", "Watch a job: its ranks, pace, shares of a step, memory, last calls");
  auto options = std::make_shared<TopOptions>();
  verb.add_option("job", &options->target, "folder of the run, or process id of launcher or rank")
      .type_name("DIR|PID")
      .required();
  verb.add_flag("--once", &options->once, "one page, as a pipe or a file gets");
  verb.footer("A page each second until the job ends or Ctrl-C.");
  verb.on_chosen([=] { return watch(*options); });
}

}  // namespace hanji::cli
