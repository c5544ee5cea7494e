#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <vector>

#include "hanji/data/prefetcher.h"
#include "hanji/train/dataset.h"
#include "hanji/train/job.h"
#include "hanji/train/private_memory.h"
#include "hanji/train/run_log.h"
#include "hanji/train/step.h"
#include "hanji/train/stop_signal.h"

namespace hanji::train {

class OperationProfile;
class StepAccounts;

/// Inputs of the loop; all of them outlive it.
struct LoopInputs {
  const plan::Plan& plan;
  const Dataset& dataset;
  PrivateMemory& memory;
  StopSignal& stop;
  RunLog* log = nullptr;                ///< Rank 0 only.
  StepAccounts* accounts = nullptr;     ///< Writes what this rank does; none: nothing is written.
  OperationProfile* profile = nullptr;  ///< Times operations of some steps; none: of no step.
  int64_t first_step = 0;               ///< Steps of an earlier run.
  /// Called on every rank after step number `steps_done`, when a checkpoint is due.
  /// The saved state changes next after before_update.
  std::function<void(int64_t steps_done, double validation_loss)> save;
  std::function<void()> before_update;
  Step step = run_step;
};

/// Seconds of one step on this rank.
struct StepSeconds {
  double step = 0;
  double data = 0;
  data::ReadingTime reading =
      {};  ///< Of this rank's threads, until the samples of the step were there.
  std::optional<CallSeconds> calls = {};  ///< Absent if the engine does not measure them.
};

struct LoopOutcome {
  int64_t steps_done = 0;
  int64_t num_skipped = 0;          ///< Steps without an update (train.nan = skip),
  int64_t num_without_targets = 0;  ///< and those of them without a valid target.
  double train_loss = 0;            ///< Loss of the last step with a valid target.
  double validation_loss = 0;
  double validation_metric = 0;  ///< Of Model::metric_name(), if it has one.
  int stop_signal = 0;           ///< The signal that ended the run early, or 0.
  int64_t first_step_end_ns = 0;
  int64_t wire_bytes_per_step = 0;     ///< Of this rank, the minimum over steps.
  int64_t network_bytes_per_step = 0;  ///< The same, by messages.
  int64_t collectives_per_step = 0;    ///< Of this rank.
  int64_t data_bytes = 0;              ///< Of this rank's inputs and targets of a step,
  int64_t batch_bytes = 0;             ///< and of those of two steps on its GPU, if it has one.
  std::vector<StepSeconds> seconds;
};

/// Trains from first_step to the last: reads, steps, logs, evaluates and saves. If any rank received a
/// signal, all ranks stop after the same step.
///
/// Order   collective.
/// Errors  throws as the step; skip_reason() of a step, if train.nan = stop.
LoopOutcome run_loop(Job& job, const LoopInputs& inputs);

}  // namespace hanji::train
