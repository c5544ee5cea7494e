#pragma once

#include <cstdint>

#include "hanji/data/samples.h"
#include "hanji/layout/range.h"
#include "hanji/schedule/grain_tree.h"
#include "hanji/train/job.h"

namespace hanji::train {

struct EvaluateInputs {
  int64_t num_samples = 0;  ///< Of the validation part, spread evenly over it.
  layout::Range share;      ///< Those of this rank's data coordinate.
  int64_t micro_batch = 1;
  /// Over the micro-batches of all data coordinates, where bits are stable; null: plain sums.
  const schedule::GrainTree* tree = nullptr;
};

/// The mean token loss over `num_samples` validation samples, in nats; the same on every rank.
///
/// Order   collective. The model is in training mode again afterwards.
double evaluate(Job& job, const data::TokenSamples& samples, const EvaluateInputs& inputs);

}  // namespace hanji::train
