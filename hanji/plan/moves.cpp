#include "hanji/plan/moves.h"

#include <vector>

#include "hanji/plan/memory.h"
#include "hanji/plan/model_family.h"
#include "hanji/plan/plan.h"
#include "hanji/plan/rank_memory.h"

namespace hanji::plan {
namespace {

using cost::Moved;

int64_t activation_bytes_of(Precision precision) {
  return precision == Precision::kBFloat16 ? 2 : parameter_bytes(precision);
}

}  // namespace

std::optional<ComparedMoves> compare_moves(const Plan& plan) {
  const Config& config = plan.config;
  const auto mlp = family_of(config.model).mlp;
  const int degree = plan.mesh.degree("tp");
  if (mlp == nullptr || degree == 1 || config.train.cuts.features > 1) return std::nullopt;
  const std::vector<cost::LinearRegion> layers = mlp(config, plan.micro_batch);
  std::vector<cost::RegionCall> activations, weights;
  const auto add = [](std::vector<cost::RegionCall>& all, const cost::LinearRegion& layer,
                      Moved moved) {
    const std::vector<cost::RegionCall> calls = cost::calls_of(layer, moved);
    all.insert(all.end(), calls.begin(), calls.end());
  };
  add(activations, layers.front(), Moved::kInput);
  add(activations, layers.back(), Moved::kOutput);
  for (const cost::LinearRegion& layer : layers) add(weights, layer, Moved::kWeights);
  const base::Precision precision = plan.kernels.precision;
  const cost::ElementBytes bytes{activation_bytes_of(precision), parameter_bytes(precision)};
  const cost::SecondsOf seconds_of = cost::seconds_on_host(plan.rates, degree);
  return ComparedMoves{
      layers.front().rows,
      cost::cost_of(Moved::kInput, std::move(activations), degree, bytes, seconds_of),
      cost::cost_of(Moved::kWeights, std::move(weights), degree, bytes, seconds_of)};
}

std::optional<std::vector<cost::TriangleCost>> compare_triangles(const Plan& plan) {
  const Config& config = plan.config;
  const int degree = plan.mesh.degree("axial");
  if (degree == 1 || config.train.bits == Bits::kStable) return std::nullopt;
  const ModelConfig model = resolved(config.model);
  const layout::AxialBlock block{.residues = config.data.residues,
                                 .sequences = 0,
                                 .width = model.width * plan.micro_batch,
                                 .heads = model.heads,
                                 .ranks = degree};
  return cost::compare_triangles(block, activation_bytes_of(plan.kernels.precision),
                                 cost::seconds_on_host(plan.rates, degree));
}

TriangleWay cheapest_triangle(const Plan& plan, const std::vector<cost::TriangleCost>& triangles,
                              int64_t available_bytes) {
  const auto usable = static_cast<int64_t>(kUsableMemory * static_cast<double>(available_bytes)) /
                      most_ranks_on_host(plan);
  const int64_t kept_at_once =
      plan.config.compute.recompute ? 1 : resolved(plan.config.model).layers;
  return cost::cheapest_triangle(
      triangles, kept_at_once,
      usable - plan.predicted.peak_bytes_per_rank - total_bytes(process_lines(plan, plan.memory)));
}

}  // namespace hanji::plan
