#pragma once

#include "hanji/plan/model_facts.h"
#include "hanji/plan/plan.h"
#include "hanji/train/dataset.h"

namespace hanji::train {

/// What the layers of a configuration's model ask for, counted in a forward and backward of few
/// samples: every operation, and every byte that libtorch allocates.
///
/// Result  the facts of the layers as they are run: with compute.recompute those of its repetitions.
///         Nothing is timed.
/// Cost    the model in memory, and three passes over two or four samples on one thread.
/// Errors  throws what the model throws.
plan::ModelFacts count_facts(const plan::Config& config, const Workload& workload);

}  // namespace hanji::train
