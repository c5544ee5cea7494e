#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "hanji/launch/launcher.h"

namespace hanji::launch {

/// What `hanji run -n RANKS -- PROGRAM ARGUMENTS` is made of.
struct RunOptions {
  std::vector<std::string> command;
  int ranks = 0;                   ///< On this host; 0: one per usable core.
  std::optional<MultiHost> hosts;  ///< Of a run on several hosts.
  int max_restarts = 0;            ///< See restart.h.
  OnDeath on_death = OnDeath::kStop;
  bool adopts_orphans = false;  ///< Passed to LaunchOptions::adopts_orphans.
  /// One log per rank, and ranks.json while they live. Empty: all write where the command writes.
  std::filesystem::path log_directory;
  std::function<void(const RankEvent&)> on_event;
};

/// Starts any program as ranks of this host, each pinned to cores of its own as long as there are
/// enough of them, else with OMP_NUM_THREADS=1 unless the user has set it. Threads of ranks wait as
/// topology::choose_wait_policy() says.
///
/// Result  as launch_with_restarts(); its exit_code is the command's.
/// Errors  kInvalidArgument for a negative number of ranks or restarts, or no command; as launch().
Result<Outcome> run_program(const RunOptions& options);

}  // namespace hanji::launch
