#pragma once

#include <optional>
#include <vector>

#include "hanji/cost/linear_region.h"
#include "hanji/cost/triangle.h"
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

/// The ways in which ranks of mesh.axial can multiply the triangles of a block, in forward and backward of a
/// full micro-batch, by the plan's rates, the fastest first. None: there is no choice, as no such axis cuts
/// the model, or its rows are in blocks, whose sums only channels keep.
std::optional<std::vector<cost::TriangleCost>> compare_triangles(const Plan& plan);

/// The fastest way that fits beside what the plan takes of a host with so many free bytes, where ranks move
/// `triangles` by channels.
TriangleWay cheapest_triangle(const Plan& plan, const std::vector<cost::TriangleCost>& triangles,
                              int64_t available_bytes);

}  // namespace hanji::plan
