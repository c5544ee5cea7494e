#include "hanji/plan/context.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "hanji/cost/price.h"
#include "hanji/cost/select.h"
#include "hanji/layout/part.h"
#include "hanji/plan/memory.h"
#include "hanji/plan/model_facts.h"
#include "hanji/plan/model_spec.h"
#include "hanji/plan/plan.h"

namespace hanji::plan {
namespace {

using layout::ContextAttention;
using layout::ContextCall;

/// Of queries against keys twice forward, and five times backward, below the diagonal.
constexpr double kAttentionProducts = 7;

double transfer_seconds(const ContextCall& call, int ranks, int64_t samples, DType dtype,
                        cost::Chooser& chooser) {
  std::vector<int64_t> counts = call.counts;
  for (int64_t& one : counts) one *= samples;
  const int64_t count = std::reduce(counts.begin(), counts.end());
  return cost::price_seconds({.routine = schedule::Routine::kAllToAll,
                              .element_bytes = static_cast<int64_t>(base::size_of(dtype)),
                              .ranks = ranks,
                              .count = count,
                              .counts = std::move(counts),
                              .dtype = dtype,
                              .in_heap = false},
                             chooser);
}

/// Of the rank that has most heads; a ring's have as much each, and merge what each step gives.
double attention_seconds(const ContextAttention& a, ContextWay way, int64_t samples) {
  const auto tokens = static_cast<double>(samples * a.tokens);
  const double all =
      kAttentionProducts * tokens * static_cast<double>(a.tokens * a.heads * a.width);
  if (way == ContextWay::kUlysses) {
    const auto most = static_cast<double>(layout::context_heads(a)[0]);
    return estimated_seconds(all * most / static_cast<double>(a.heads), 0);
  }
  const double merged = 3 * sizeof(float) * tokens * static_cast<double>(a.heads * a.width);
  return estimated_seconds(all / a.ranks, merged * (a.ranks - 1) / a.ranks);
}

ContextCost cost_of(const ContextAttention& attention, ContextWay way, int64_t samples,
                    int64_t element_bytes, cost::Chooser& chooser) {
  ContextCost cost{.way = way, .attention_seconds = attention_seconds(attention, way, samples)};
  for (const ContextCall& call : layout::context_calls(attention, way)) {
    const int64_t bytes = call.is_sum ? std::max<int64_t>(4, element_bytes) : element_bytes;
    (call.is_backward ? cost.backward_bytes : cost.forward_bytes) += samples * bytes * call.sent();
    const DType dtype = bytes == 8   ? DType::kFloat64
                        : bytes == 2 ? DType::kBFloat16
                                     : DType::kFloat32;
    cost.transfer_seconds += transfer_seconds(call, attention.ranks, samples, dtype, chooser);
  }
  return cost;
}

bool serves(const ContextAttention& attention, ContextWay way) {
  return way == ContextWay::kUlysses ? attention.heads >= attention.ranks
                                     : attention.tokens >= 2 * attention.ranks;
}

}  // namespace

std::vector<ContextCost> compare_context(const ContextAttention& attention, int64_t samples,
                                         int64_t element_bytes, const cost::Rates& rates) {
  cost::Chooser chooser(rates);
  std::vector<ContextCost> costs;
  for (const ContextWay way : {ContextWay::kUlysses, ContextWay::kRing}) {
    if (!serves(attention, way)) continue;
    costs.push_back(cost_of(attention, way, samples, element_bytes, chooser));
  }
  std::ranges::stable_sort(costs, {}, &ContextCost::seconds);
  return costs;
}

std::vector<ContextCost> compare_context(const Plan& plan) {
  const int ranks = plan.mesh.degree("cp");
  if (ranks == 1) return {};
  const ModelSpec model = resolve_model(plan.config.model);
  const base::Precision precision = plan.kernels.precision;
  const int tp = plan.mesh.degree("tp");
  return compare_context({.tokens = model.block,
                          .heads = model.heads / tp,
                          .kv_heads = (model.kv_heads > 0 ? model.kv_heads : model.heads) / tp,
                          .width = model.width / model.heads,
                          .ranks = ranks},
                         plan.micro_batch,
                         precision == Precision::kBFloat16 ? 2 : parameter_bytes(precision),
                         plan.rates);
}

ContextWay context_way(const Config& config) {
  const ContextWay way = config.parallel.context;
  if (way != ContextWay::kAuto) return way;
  const bool has_heads = config.mesh.cp * config.mesh.tp <= resolve_model(config.model).heads;
  return has_heads ? ContextWay::kUlysses : ContextWay::kRing;
}

std::vector<int64_t> context_extents(const Config& config) {
  const int64_t tokens = resolve_model(config.model).block;
  const auto ranks = static_cast<int>(config.mesh.cp);
  const auto blocks = static_cast<int>(config.train.cuts.tokens);
  const bool in_blocks = blocks > 1 && blocks >= ranks;
  if (!in_blocks) return layout::context_extents(tokens, ranks, context_way(config));
  return layout::part_sizes(tokens, 1, ranks, blocks);
}

bool leaves_context_open(const Config& config) {
  const ModelSpec model = resolve_model(config.model);
  const int64_t ranks = config.mesh.cp;
  return ranks > 1 && config.parallel.context == ContextWay::kAuto &&
         ranks * config.mesh.tp <= model.heads && 2 * ranks <= model.block &&
         config.model.dropout == 0 && config.train.bits == Bits::kRun;
}

}  // namespace hanji::plan
