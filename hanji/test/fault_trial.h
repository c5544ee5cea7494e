#pragma once

#include <signal.h>

#include <chrono>
#include <filesystem>
#include <string>
#include <vector>

#include "hanji/launch/launcher.h"

namespace hanji::test {

/// A fault to put into a job of ranks without torch; see faults_rank.cpp.
struct Fault {
  std::string kind = "none";      ///< See break_down(); stay_away, stay_stopped and
                                  ///< stray hang without end; none.
  std::string phase = "forward";  ///< forward collective optimizer save
  int rank = 1;
  int64_t step = 5;  ///< A multiple of five for save.
  int ranks = 3;
  int64_t num_steps = 1'000'000;
  std::chrono::milliseconds watcher_delay{0};  ///< Its watchdogs tell that late, for a test.
};

/// Of the ranks of these jobs.
inline constexpr std::chrono::milliseconds kFaultHeartbeat{100};

/// What came of it.
struct FaultTrial {
  launch::Outcome outcome;
  std::vector<launch::RankEvent> events;
  std::vector<std::string> logs;       ///< By rank.
  std::vector<double> seconds_to_see;  ///< By rank: from the fault to its own log; negative: never.
};

/// Runs the job in `folder`, which must be empty, until all has ended.
Result<FaultTrial> run_fault(const Fault& fault, const std::filesystem::path& folder,
                             launch::LaunchOptions options = {});

/// A signal to a random rank at a random moment: SIGKILL, or SIGSTOP on one host.
struct RandomStrike {
  uint64_t seed = 1;
  int signal = SIGKILL;
  int hosts = 1;  ///< With 2: two launchers on this host, two ranks each.
  std::chrono::milliseconds watcher_delay{0};
};

/// Strikes and waits until all has ended. One SIGKILL in eight comes while the ranks still start.
///
/// Result  by survivor, on all hosts, the seconds from the signal to the line in its own log that
///         names the rank; none where the ranks had not begun.
/// Errors  kInternal where a survivor or a launcher did not name it.
Result<std::vector<double>> strike_at_random(const RandomStrike& strike,
                                             const std::filesystem::path& folder);

}  // namespace hanji::test
