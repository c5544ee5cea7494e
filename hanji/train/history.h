#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

#include "hanji/base/status.h"

namespace hanji::train {

/// Seconds of the collectives of one step on one rank: moving bytes, and separately waiting for a
/// slower rank.
struct CallSeconds {
  double transfer = 0;
  double exposed_transfer = 0;  ///< The part that is not hidden behind this rank's computation.
  double skew = 0;
  bool operator==(const CallSeconds&) const = default;
};

/// Seconds of one step on rank 0.
struct LoggedStep {
  double step = 0;
  double data = 0;
  std::optional<CallSeconds> calls = {};  ///< Absent in logs without separate skew.
  int ranks = 0;
};

/// A resumption of a run after `step` steps.
struct Resumption {
  int64_t step = 0;
  int ranks = 0;
};

/// The log of a run before its resumption.
struct History {
  bool found = false;  ///< False: no log exists, so the run starts.
  int64_t steps = 0;   ///< Done before.
  std::vector<LoggedStep> logged;
  std::vector<Resumption> resumptions;  ///< Earlier ones.
  double train_loss = 0;                ///< Loss of the last step with a valid target.
  int64_t num_without_targets = 0;      ///< Steps without one.
  double validation_loss = 0;           ///< Of the last evaluation; 0: there was none.
  double validation_metric = 0;         ///< Of it, too: the model's metric.
};

/// Truncates a run.jsonl to its first `steps` steps and reads the rest. Removes an incomplete line of
/// a killed run, and the lines of later steps, which will run again.
///
/// Cost    one pass over the file; if it changes, it is rewritten atomically.
/// Errors  kCorrupt for another line that is not of this log, with its number.
Result<History> rewind_log(const std::filesystem::path& path, int64_t steps);

}  // namespace hanji::train
