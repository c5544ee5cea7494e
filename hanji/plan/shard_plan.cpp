#include "hanji/plan/shard_plan.h"

#include <algorithm>
#include <functional>
#include <map>
#include <utility>

namespace hanji::plan {
namespace {

/// Of parallel::ShardingOptions::max_units_in_flight.
constexpr int64_t kUnshardedUnits = 2;

int64_t whole_gradients(const ShardPlan& plan, const Passes& passes) {
  int64_t all = 0, largest = 0;
  for (const layout::Unit& unit : plan.units) {
    all += unit.flat.count;
    largest = std::max(largest, unit.flat.count);
  }
  if (passes.grain_buffers > 0) return passes.grain_buffers * all;
  if (plan.data == Sharding::kZero1) return all;
  const auto num_units = static_cast<int64_t>(plan.units.size());
  return largest * (passes.accumulates ? num_units : std::min(num_units, kUnshardedUnits));
}

/// By layer, without those that have none; copies alone, before the others.
std::vector<std::vector<int>> group_by_layer(const std::vector<ParameterFacts>& parameters) {
  std::vector<std::vector<int>> groups;
  std::map<int64_t, std::vector<int>> layers;
  for (size_t i = 0; i < parameters.size(); ++i) {
    const auto index = static_cast<int>(i);
    if (parameters[i].is_copied) {
      groups.push_back({index});
    } else {
      layers[parameters[i].layer].push_back(index);
    }
  }
  for (auto& [layer, indices] : layers) groups.push_back(std::move(indices));
  return groups;
}

}  // namespace

bool cuts_states(Sharding sharding) {
  return sharding != Sharding::kReplicas && sharding != Sharding::kServer;
}

bool cuts_parameters(Sharding sharding) {
  return sharding == Sharding::kZero3 || sharding == Sharding::kHybrid;
}

void cut_model(const ModelFacts& model, int64_t unit_bytes, ShardPlan& plan) {
  plan.units.clear();
  const std::vector<int64_t> sizes = model.parameter_sizes();
  std::vector<int> alone;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (model.parameters[i].is_copied) alone.push_back(static_cast<int>(i));
  }
  for (auto& indices : cuts_parameters(plan.data)
                           ? group_by_layer(model.parameters)
                           : layout::group_by_size(sizes, unit_bytes / plan.element_bytes, alone)) {
    plan.units.push_back(layout::make_unit(std::move(indices), sizes, plan.ranks));
  }
}

int64_t shard_bytes(const ShardPlan& plan, int rank) {
  int64_t elements = 0;
  for (const layout::Unit& unit : plan.units) elements += unit.shards[rank].size();
  return elements * plan.element_bytes;
}

std::vector<int64_t> norm_counts(const ShardPlan& plan) {
  std::vector<int64_t> counts(plan.ranks);
  for (const layout::Unit& unit : plan.units) {
    const auto more = layout::block_counts(unit);
    std::ranges::transform(counts, more, counts.begin(), std::plus());
  }
  return counts;
}

std::vector<MemoryLine> state_lines(const ShardPlan& plan, int rank, const Passes& passes) {
  int64_t all = 0;
  for (const layout::Unit& unit : plan.units) all += unit.flat.count;
  all *= plan.element_bytes;
  const int64_t shard = shard_bytes(plan, rank);
  const std::vector<MemoryLine> gradients = {
      {"gradients", whole_gradients(plan, passes) * plan.element_bytes},
      {"gradient shards", shard}};
  const int64_t once = rank == 0 ? all : 0;
  if (!plan.spans_hosts) {
    return {{"parameters", once}, gradients[0], gradients[1], {"optimizer", 2 * once}};
  }
  const MemoryLine parameters = cuts_parameters(plan.data) ? MemoryLine{"parameter shards", shard}
                                                           : MemoryLine{"parameters", all};
  return {parameters, gradients[0], gradients[1], {"optimizer", 2 * shard}};
}

int64_t bytes_per_group(const ShardPlan& plan, const std::vector<MemoryLine>& lines) {
  if (plan.spans_hosts) return 0;
  int64_t bytes = 0;
  for (const MemoryLine& line : lines) {
    const bool once = line.category == "parameters" || line.category == "optimizer";
    bytes += once ? line.bytes : 0;
  }
  return bytes;
}

}  // namespace hanji::plan
