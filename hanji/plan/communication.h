#pragma once

#include "hanji/plan/predict.h"

namespace hanji::plan {

/// A collective of gradients that backward starts.
struct GradientCall {
  double ready = 0;  ///< Share of backward after which its gradients are finished.
  double network_seconds = 0;
};

/// Adds the collectives of one step to `prediction`: seconds, bytes and how many, by the very lists
/// that the ranks will run. One rank alone has none.
///
/// Result  with one state on every rank: an all_reduce per bucket. Cut among ranks: per unit a
///         reduce_scatter within the group and an all_reduce of the shards over groups, whose
///         calls share the link between hosts, an all_gather of the norm's partial sums, and a
///         barrier before and after the update. By servers: messages there and back, and
///         the all_gather. In stable a tree over grains per bucket or unit. Then which
///         parameters were used, and the totals. Returns the calls of gradients in their order.
std::vector<GradientCall> predict_communication(const StepFacts& facts, Prediction& prediction);

}  // namespace hanji::plan
