#pragma once

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
};

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

/// Kills a random rank at a random moment. Ok if every survivor and the launcher named it.
Status kill_at_random(uint64_t seed, const std::filesystem::path& folder);

}  // namespace hanji::test
