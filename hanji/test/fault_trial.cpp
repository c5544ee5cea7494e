#include "hanji/test/fault_trial.h"

#include <fmt/format.h>
#include <signal.h>

#include <charconv>
#include <thread>

#include "hanji/base/file.h"
#include "hanji/base/random.h"

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

}  // namespace

Result<FaultTrial> run_fault(const Fault& fault, const std::filesystem::path& folder,
                             launch::LaunchOptions options) {
  FaultTrial trial;
  options.command = {HANJI_FAULTS_RANK,
                     fault.kind,
                     fault.phase,
                     std::to_string(fault.rank),
                     std::to_string(fault.step),
                     folder.string(),
                     std::to_string(fault.num_steps)};
  options.ranks = fault.ranks;
  options.log_directory = folder / "logs";
  // Sanitizers would turn a broken rank's signal into an exit code of theirs.
  for (const char* sanitizer : {"ASAN", "TSAN"}) {
    options.environment.push_back(std::string(sanitizer) + "_OPTIONS=handle_segv=0:handle_abort=0");
  }
  options.segment.heap_bytes_per_rank = 4 << 20;
  options.segment.trace_events = 64;
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

Status kill_at_random(uint64_t seed, const std::filesystem::path& folder) {
  const Fault fault{.rank = static_cast<int>(base::mix(seed, 1) % 3)};
  const std::chrono::microseconds delay(base::mix(seed, 2) % 30'000);
  std::vector<pid_t> pids;
  std::jthread killer;
  launch::LaunchOptions options;
  options.signals = launch::Signals::kLeave;
  options.on_event = [&](const launch::RankEvent& event) {
    if (event.kind != launch::RankEventKind::kStarted) return;
    pids.push_back(event.pid);
    if (static_cast<int>(pids.size()) < fault.ranks) return;
    const pid_t victim = pids[fault.rank];
    killer = std::jthread([victim, delay] {
      std::this_thread::sleep_for(10ms + delay);
      ::kill(victim, SIGKILL);
    });
  };
  HANJI_ASSIGN_OR_RETURN(const FaultTrial trial, run_fault(fault, folder, std::move(options)));
  if (trial.outcome.first_failed != fault.rank || trial.outcome.exit_code != 128 + SIGKILL) {
    return base::internal(
        fmt::format("seed {}: rank {} was killed, but: {}", seed, fault.rank, trial.outcome.cause));
  }
  const std::string name = fmt::format("rank {} (host ", fault.rank);
  for (int rank = 0; rank < fault.ranks; ++rank) {
    const std::string& log = trial.logs[rank];
    if (rank == fault.rank || log.find(name) != std::string::npos) continue;
    return base::internal(
        fmt::format("seed {}: rank {} does not name rank {}:\n{}", seed, rank, fault.rank, log));
  }
  return {};
}

}  // namespace hanji::test
