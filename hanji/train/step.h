#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "hanji/layers/batch.h"
#include "hanji/schedule/action.h"
#include "hanji/train/job.h"
#include "hanji/train/private_memory.h"

namespace hanji::train {

struct StepInputs {
  int64_t number = 0;                            ///< Counted from 0; part of the dropout counters.
  std::span<const layers::Batch> micro_batches;  ///< At least one.
  const schedule::ActionList& actions;           ///< Of this rank's stages.
  PrivateMemory& memory;                         ///< Records every pass.
  double learning_rate = 0;
  const std::function<void()>& before_update;  ///< Called before parameters change.
  /// Called while a GPU computes what was launched of the passes, before the host waits for their results.
  std::function<void()> meanwhile = [] {};
  int stop_signal =
      0;  ///< A signal that this rank received, or 0; this step shares it with all ranks.
};

/// Identical on all ranks.
struct StepResult {
  double loss = 0;           ///< Mean over all valid targets of the global batch, in nats.
  int64_t num_targets = 0;   ///< Valid ones of the global batch.
  double gradient_norm = 0;  ///< Before clipping, of the mean loss.
  bool updated = false;      ///< False if there is a skip_reason(): nothing has changed.
  int stop_signal = 0;       ///< SIGINT or SIGTERM: a rank received it; save and stop.
};

/// Runs one optimizer step: executes the actions (forward and backward of every micro-batch, the
/// reduction over the ranks during the last backward), computes the norm of all gradients, and updates.
///
/// Losses are summed over all data coordinates and divided once by the number of valid targets; the
/// ranks of one coordinate count once. The same holds for the statistics, which update the model's
/// buffers after the update of the parameters.
/// Ranks of one data coordinate first share who was told to stop, as SharedBatches asks for: the samples
/// that a peer has read are there from then on.
/// Order   collective; every rank of the job calls it once per step.
/// Errors  throws as parallel::Pipeline::run().
StepResult run_step(Job& job, const plan::TrainConfig& train, const StepInputs& inputs);

/// run_step() or a function around it.
using Step = std::function<StepResult(Job&, const plan::TrainConfig&, const StepInputs&)>;

}  // namespace hanji::train
