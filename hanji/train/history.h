#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

#include "hanji/base/status.h"

namespace hanji::train {

/// Seconds of the collectives of one step on one rank: bytes that move, apart from waiting for a
/// slower rank.
struct CallSeconds {
  double transfer = 0;
  double exposed_transfer = 0;  ///< Of it, what did not hide behind this rank's computing.
  double skew = 0;
  bool operator==(const CallSeconds&) const = default;
};

/// Seconds of one step on rank 0.
struct LoggedStep {
  double step = 0;
  double data = 0;
  std::optional<CallSeconds> calls = {};  ///< Absent in logs that did not tell skew apart.
  int ranks = 0;
};

/// A run that went on behind `step` steps.
struct Resumption {
  int64_t step = 0;
  int ranks = 0;
};

/// What a run's log tells of the steps before it goes on.
struct History {
  bool found = false;  ///< False: nothing was logged yet, so this is the run's begin.
  int64_t steps = 0;   ///< Done before.
  std::vector<LoggedStep> logged;
  std::vector<Resumption> resumptions;  ///< Earlier ones.
  double train_loss = 0;                ///< Of the last step.
  double validation_loss = 0;           ///< Of the last evaluation; 0: there was none.
  double validation_metric = 0;         ///< Of it, too: what the model counts beside the loss.
};

/// Cuts a run.jsonl back to its first `steps` steps and reads what stays. What a killed run left of
/// an open line goes; so do the lines of later steps, which will be made again.
///
/// Cost    one pass over the file; it is written anew, atomically, if anything goes.
/// Errors  kCorrupt for a line before that is not of this log, with its number.
Result<History> rewind_log(const std::filesystem::path& path, int64_t steps);

}  // namespace hanji::train
