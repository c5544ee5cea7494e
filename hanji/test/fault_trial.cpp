#include "hanji/test/fault_trial.h"

#include <fmt/format.h>
#include <signal.h>

#include <charconv>
#include <mutex>
#include <sstream>
#include <thread>

#include "hanji/base/clock.h"
#include "hanji/base/file.h"
#include "hanji/base/random.h"
#include "hanji/base/tcp.h"

namespace hanji::test {
namespace {

using namespace std::chrono_literals;

/// The number after the first `words` in `text`; -1 if there is none.
int64_t number_after(const std::string& text, std::string_view words) {
  const size_t at = text.find(words);
  int64_t value = -1;
  if (at != std::string::npos) {
    std::from_chars(text.data() + at + words.size(), text.data() + text.size(), value);
  }
  return value;
}

void read_times(const Fault& fault, FaultTrial& trial) {
  const bool inside = fault.rank < fault.ranks;
  const int64_t broke = inside ? number_after(trial.logs[fault.rank], "breaks at ") : -1;
  for (const std::string& log : trial.logs) {
    const int64_t seen = number_after(log, "seen at ");
    const bool known = broke >= 0 && seen >= 0;
    trial.seconds_to_see.push_back(known ? static_cast<double>(seen - broke) * 1e-9 : -1);
  }
}

/// What all jobs of faults_rank share.
launch::LaunchOptions job_of(const Fault& fault, const std::filesystem::path& folder,
                             launch::LaunchOptions options) {
  options.command = {HANJI_FAULTS_RANK,
                     fault.kind,
                     fault.phase,
                     std::to_string(fault.rank),
                     std::to_string(fault.step),
                     folder.string(),
                     std::to_string(fault.num_steps),
                     std::to_string(fault.watcher_delay.count())};
  options.ranks = fault.ranks;
  options.log_directory = folder / "logs";
  // Sanitizers would turn a broken rank's signal into an exit code of theirs.
  for (const char* sanitizer : {"ASAN", "TSAN"}) {
    options.environment.push_back(std::string(sanitizer) + "_OPTIONS=handle_segv=0:handle_abort=0");
  }
  options.segment.heap_bytes_per_rank = 4 << 20;
  options.segment.trace_events = 64;
  return options;
}

std::string read_log(const std::filesystem::path& folder, int rank) {
  auto log = base::read_file(folder / "logs" / fmt::format("rank.{}", rank));
  return log.ok() ? *std::move(log) : std::string();
}

/// When a survivor's log named the rank, in now_ns(); -1: not yet.
int64_t named_at(const std::string& log, int victim, int signal) {
  const std::string name = fmt::format("rank {} (", victim);
  std::istringstream lines(log);
  for (std::string line; std::getline(lines, line);) {
    const bool stopped = line.find(" is stopped") != std::string::npos;
    if (line.find(name) == std::string::npos || stopped != (signal == SIGSTOP)) continue;
    const int64_t seen = number_after(line, "seen at ");
    if (seen >= 0) return seen;
  }
  return -1;
}

/// Strikes once, when all ranks run.
class Striker {
 public:
  Striker(const RandomStrike& strike, const std::filesystem::path& folder, int ranks)
      : strike_(strike), folder_(folder), ranks_(ranks), pids_(static_cast<size_t>(ranks)) {}

  int victim() const { return static_cast<int>(base::mix(strike_.seed, 1) % ranks_); }
  bool is_early() const {
    return strike_.signal == SIGKILL && strike_.hosts == 1 && base::mix(strike_.seed, 3) % 8 == 0;
  }
  int64_t struck_ns() const { return struck_ns_; }

  void notify(const launch::RankEvent& event) {
    if (event.kind != launch::RankEventKind::kStarted) return;
    const std::lock_guard lock(mutex_);
    pids_.at(static_cast<size_t>(event.rank)) = event.pid;
    if (++num_started_ == ranks_) thread_ = std::jthread([this] { strike(); });
  }
  void finish() {
    if (thread_.joinable()) thread_.join();
  }

 private:
  template <class Condition>
  static void await(const Condition& condition) {
    const auto deadline = base::Deadline::after(20s);
    while (!condition() && !deadline.passed()) std::this_thread::sleep_for(500us);
  }
  bool all_have_begun() const {
    for (int rank = 0; rank < ranks_; ++rank) {
      if (read_log(folder_, rank).find("has begun") == std::string::npos) return false;
    }
    return true;
  }
  bool all_have_named() const {
    for (int rank = 0; rank < ranks_; ++rank) {
      const bool named = named_at(read_log(folder_, rank), victim(), strike_.signal) >= 0;
      if (rank != victim() && !named) return false;
    }
    return true;
  }
  void strike() {
    if (!is_early()) await([&] { return all_have_begun(); });
    std::this_thread::sleep_for(std::chrono::microseconds(base::mix(strike_.seed, 2) % 30'000));
    const pid_t pid = pids_[static_cast<size_t>(victim())];
    struck_ns_ = base::now_ns();
    ::kill(pid, strike_.signal);
    if (strike_.signal == SIGKILL) return;
    await([&] { return all_have_named(); });
    ::kill(pid, SIGKILL);
  }

  const RandomStrike strike_;
  const std::filesystem::path folder_;
  const int ranks_;
  std::mutex mutex_;
  std::vector<pid_t> pids_;
  int num_started_ = 0;
  int64_t struck_ns_ = -1;
  std::jthread thread_;
};

/// A port that nobody has listened on a moment ago.
Result<base::HostPort> free_place() {
  HANJI_ASSIGN_OR_RETURN(const base::Fd probe, base::listen_tcp({"127.0.0.1", 0}));
  return base::local_place(probe.get());
}

/// One launcher per host, each of which returns when all its ranks have ended.
Result<std::vector<launch::Outcome>> launch_all(const launch::LaunchOptions& options, int hosts) {
  if (hosts == 1) {
    HANJI_ASSIGN_OR_RETURN(launch::Outcome outcome, launch::launch(options));
    return std::vector{std::move(outcome)};
  }
  HANJI_ASSIGN_OR_RETURN(const base::HostPort rendezvous, free_place());
  HANJI_ASSIGN_OR_RETURN(const launch::Token token, launch::make_token());
  std::vector<Result<launch::Outcome>> outcomes(static_cast<size_t>(hosts),
                                                base::internal("not launched"));
  std::vector<std::jthread> launchers;
  for (int node = 0; node < hosts; ++node) {
    launchers.emplace_back([&, node] {
      launch::LaunchOptions own = options;
      own.hosts = launch::MultiHost{.num_nodes = hosts,
                                    .node = node,
                                    .rendezvous = rendezvous,
                                    .token = token,
                                    .join_time = 30s};
      outcomes[static_cast<size_t>(node)] = launch::launch(own);
    });
  }
  launchers.clear();
  std::vector<launch::Outcome> all;
  for (auto& outcome : outcomes) {
    HANJI_RETURN_IF_ERROR(outcome.status());
    all.push_back(*std::move(outcome));
  }
  return all;
}

}  // namespace

Result<FaultTrial> run_fault(const Fault& fault, const std::filesystem::path& folder,
                             launch::LaunchOptions options) {
  FaultTrial trial;
  options = job_of(fault, folder, std::move(options));
  const auto told = options.on_event;
  options.on_event = [&](const launch::RankEvent& event) {
    trial.events.push_back(event);
    if (told) told(event);
  };
  HANJI_ASSIGN_OR_RETURN(trial.outcome, launch::launch(options));
  for (int rank = 0; rank < fault.ranks; ++rank) {
    const auto path = options.log_directory / fmt::format("rank.{}", rank);
    const bool readable = std::filesystem::is_regular_file(path);  // not /dev/full
    HANJI_ASSIGN_OR_RETURN(std::string log, readable ? base::read_file(path) : std::string());
    trial.logs.push_back(std::move(log));
  }
  read_times(fault, trial);
  return trial;
}

Result<std::vector<double>> strike_at_random(const RandomStrike& strike,
                                             const std::filesystem::path& folder) {
  const int ranks = strike.hosts == 1 ? 3 : 2;
  Striker striker(strike, folder, ranks * strike.hosts);
  launch::LaunchOptions options;
  options.signals = launch::Signals::kLeave;
  options.on_event = [&](const launch::RankEvent& event) { striker.notify(event); };
  const Fault fault{.rank = -1, .ranks = ranks, .watcher_delay = strike.watcher_delay};
  const auto outcomes = launch_all(job_of(fault, folder, std::move(options)), strike.hosts);
  striker.finish();
  HANJI_RETURN_IF_ERROR(outcomes.status());
  const int victim = striker.victim();
  for (int host = 0; host < strike.hosts; ++host) {
    const launch::Outcome& outcome = (*outcomes)[static_cast<size_t>(host)];
    const int first = host == victim / ranks ? victim % ranks : -1;
    if (outcome.first_failed == first && outcome.exit_code == 128 + SIGKILL) continue;
    return base::internal(fmt::format("seed {}: rank {} was struck, but host {} says: {}",
                                      strike.seed, victim, host, outcome.cause));
  }
  std::vector<double> seconds;
  for (int rank = 0; rank < ranks * strike.hosts; ++rank) {
    if (rank == victim) continue;
    const std::string log = read_log(folder, rank);
    const int64_t named = named_at(log, victim, strike.signal);
    const bool early = striker.is_early() && log.find(fmt::format("rank {} (", victim)) != log.npos;
    if (named < 0 && !early) {
      return base::internal(fmt::format("seed {}: rank {} does not name rank {}:\n{}", strike.seed,
                                        rank, victim, log));
    }
    if (striker.is_early()) continue;
    seconds.push_back(static_cast<double>(named - striker.struck_ns()) * 1e-9);
  }
  return seconds;
}

}  // namespace hanji::test
