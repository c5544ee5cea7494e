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
  const schedule::ActionList& actions;           ///< Of one stage; a reduce ends them.
  PrivateMemory& memory;                         ///< Is told of every pass.
  double learning_rate = 0;
  const std::function<void()>& before_update;  ///< Called when parameters are about to change.
  int stop_signal = 0;  ///< That told this rank to stop, or 0; all ranks learn it in this step.
};

/// Identical on all ranks.
struct StepResult {
  double loss = 0;           ///< Mean over all valid targets of the global batch, in nats.
  int64_t num_targets = 0;   ///< Valid ones of the global batch.
  double gradient_norm = 0;  ///< Before clipping, of the mean loss.
  bool updated = false;      ///< False when loss or gradient was not finite: nothing has changed.
  int stop_signal = 0;       ///< SIGINT or SIGTERM: some rank was told to stop; save and leave.
};

/// One optimizer step: the walk over the actions (forward and backward of every micro-batch, the
/// reduction over the ranks while the last one still computes), the norm of all gradients, and the
/// update.
///
/// Losses are summed and divided once by the number of valid targets, both of all data coordinates:
/// what ranks of one coordinate have computed is counted once. So are the statistics that move the
/// model's buffers, once, after the update.
/// Order   collective; every rank of the job calls it once per step.
/// Errors  throws kUnsupported for actions of a pipeline; what backward and Work::wait() throw.
StepResult run_step(Job& job, const plan::TrainConfig& train, const StepInputs& inputs);

/// run_step() or something around it.
using Step = std::function<StepResult(Job&, const plan::TrainConfig&, const StepInputs&)>;

}  // namespace hanji::train
