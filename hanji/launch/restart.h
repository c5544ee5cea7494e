#pragma once

#include <chrono>
#include <functional>
#include <string>

#include "hanji/launch/launcher.h"

namespace hanji::launch {

/// One start of all ranks.
struct Attempt {
  int restarts = 0;                   ///< Before this one; 0 for the first.
  const Outcome* previous = nullptr;  ///< How the one before ended; null for the first.
};

struct RestartOptions {
  int max_restarts = 0;
  /// Before a restart; doubled each time that the job fails in the same way at the same step.
  std::chrono::milliseconds pause{200};
  std::chrono::milliseconds max_pause{30'000};
  /// So often in a row the same failure at the same step ends it all.
  int max_same_failures = 3;
  /// Who lived so long without telling a step has come on, for the comparison above.
  std::chrono::milliseconds healthy_time{60'000};
  /// Called before every attempt, the first one too; may change the command, the plan and so on,
  /// for example to resume from the last checkpoint. A status that is not ok ends it all.
  std::function<Status(const Attempt&, LaunchOptions&)> prepare = {};
};

/// launch(), and once more from nothing whenever a rank fails: new processes, a new segment, the
/// same logs. A job that was stopped by a signal, or that left with a code that says so (75, 130),
/// is not started again.
///
/// Result  how the last attempt ended.
/// Order   tells kRestarted before each pause and kGaveUp, with what happened, instead of the last.
/// Errors  as launch(); kInvalidArgument for a negative number, or with
///         OnDeath::kContinue; kUnsupported on several hosts; what `prepare` returned.
/// Thread  as launch().
Result<Outcome> launch_with_restarts(LaunchOptions options, const RestartOptions& restarts);

}  // namespace hanji::launch
