#pragma once

#include <cstdint>

#include "hanji/data/source.h"
#include "hanji/layout/range.h"
#include "hanji/plan/reading.h"
#include "hanji/schedule/grain_tree.h"
#include "hanji/train/job.h"
#include "hanji/train/shared_batches.h"

namespace hanji::train {

struct EvaluateInputs {
  int64_t num_samples = 0;  ///< Of the validation part, evenly spaced.
  layout::Range share;      ///< The samples of this rank's data coordinate.
  int64_t micro_batch = 1;
  SharedBatches& batches;      ///< Of the job's peers.
  plan::Reading reading = {};  ///< Its prefetch is in micro-batches.
  /// Stages are whole from the first micro-batch to the last, also for ranks that have fewer.
  bool holds_stages = false;
  /// For stable bits, over the micro-batches of all data coordinates; null: plain sums.
  const schedule::GrainTree* tree = nullptr;
};

/// Means over the targets of the validation samples.
struct Evaluation {
  double loss = 0;          ///< In nats; NaN without a valid target.
  double metric = 0;        ///< Value of Model::metric_name(), if it has one.
  int64_t num_targets = 0;  ///< Valid ones of all samples.
};

/// Evaluates the model on `num_samples` validation samples.
///
/// Result  identical on all ranks; the model is in training mode afterwards.
/// Order   collective.
Evaluation evaluate(Job& job, const data::Source& samples, const EvaluateInputs& inputs);

}  // namespace hanji::train
