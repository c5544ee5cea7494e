#pragma once

#include <optional>

#include "hanji/cost/linear_region.h"
#include "hanji/plan/config.h"

namespace hanji::plan {

struct Plan;

/// What ranks of mesh.tp can exchange for an MLP, in forward and backward of a full micro-batch: biases
/// aside, whose bytes are few.
struct ComparedMoves {
  int64_t rows = 0;  ///< Tokens of the micro-batch.
  cost::RegionCost activations;
  cost::RegionCost weights;

  Moves cheaper() const {
    return weights.seconds < activations.seconds ? Moves::kWeights : Moves::kActivations;
  }
};

/// By the plan's micro-batch and rates. None: there is no choice, as no axis cuts the model, its family
/// has no MLP that could move weights, or its features are in blocks.
std::optional<ComparedMoves> compare_moves(const Plan& plan);

}  // namespace hanji::plan
