#pragma once

#include <vector>

#include "hanji/layers/flow.h"
#include "hanji/layers/model.h"
#include "hanji/plan/operation_times.h"
#include "hanji/train/operation_call.h"

namespace hanji::train {

/// A distinct operation of libtorch that a model was seen to call: by name, sizes and other
/// arguments.
struct RecordedOperation {
  plan::Operation operation;
  MakeCall make;
  int64_t bytes = 0;  ///< Of the call's tensors, about.
  double scale = 1;   ///< Of the call's seconds, which may be a part of the operation.
};

/// Runs one forward and backward of `batch` and records what it calls, the copies of gradients
/// included. Nothing is timed.
///
/// Result  in the order of their first calls, each with the layers of the model that call it; their calls hold
///         copies of the arguments of that call.
/// Errors  throws what the model throws.
std::vector<RecordedOperation> record_operations(layers::Model& model, const layers::Batch& batch,
                                                 const std::vector<layers::LayerScope>& scopes);

}  // namespace hanji::train
