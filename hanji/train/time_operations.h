#pragma once

#include "hanji/plan/operation_times.h"
#include "hanji/plan/plan.h"
#include "hanji/train/dataset.h"
#include "hanji/train/timing_progress.h"

namespace hanji::train {

/// What is timed, and for which ranks.
struct TimingJob {
  const plan::Plan& plan;  ///< Its kernels, threads, micro-batch and shares.
  const Workload& workload;
  int busy_ranks = 1;  ///< So many threads of this process do the same while one of them is timed.
  TimingProgress on_progress = {};
};

/// Times the operations of a forward and backward of a micro-batch, each by itself and all in turn; the
/// update of all parameters, the reading of a sample and each part of it; never a layer or a step. A family that names its own
/// operations has those timed; of any other model one forward and backward is run, unmeasured, for
/// its operations and their arguments. Of a model of pairs that is one of at most two blocks, and of fewer residues where
/// all of them take too long or too much memory: OperationTimes::residues says of how many, and seconds are scaled.
///
/// Result  means with `busy_ranks` ranks at work. A micro-batch that takes more than about a second
///         is replaced by fewer samples; an operation, or parameters, of more memory by a part.
/// Cost    half a second of timing for small models, at most 5 s; what of recorded arguments the pass
///         keeps.
/// Errors  throws what the model and the data throw.
plan::OperationTimes time_operations(const TimingJob& job);

/// Seconds that a matmul and a pass over memory take: of fixed sizes, so that two results compare the
/// machine's speed. Timed once, so that all plans of a process rest on the same times. Cost: 50 ms, once.
double probe_seconds();

}  // namespace hanji::train
