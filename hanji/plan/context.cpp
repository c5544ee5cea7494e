#include "hanji/plan/context.h"

#include <algorithm>
#include <functional>
#include <memory>
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

/// Seconds of a call on all samples, whose elements have so many bytes.
using SecondsOfCall = std::function<double(const ContextCall& call, int64_t element_bytes)>;

SecondsOfCall on_host(int ranks, int64_t samples, const cost::Rates& rates) {
  auto chooser = std::make_shared<cost::Chooser>(rates);
  return [=](const ContextCall& call, int64_t element_bytes) {
    std::vector<int64_t> counts = call.counts;
    for (int64_t& one : counts) one *= samples;
    const int64_t count = std::reduce(counts.begin(), counts.end());
    return cost::price_seconds({.routine = schedule::Routine::kAllToAll,
                                .element_bytes = element_bytes,
                                .ranks = ranks,
                                .count = count,
                                .counts = std::move(counts),
                                .dtype = element_bytes == 8   ? DType::kFloat64
                                         : element_bytes == 2 ? DType::kBFloat16
                                                              : DType::kFloat32,
                                .in_heap = false},
                               *chooser);
  };
}

/// Of the rank that sends most.
SecondsOfCall on_network(int ranks, int64_t samples, const cost::Network& network) {
  return [=](const ContextCall& call, int64_t element_bytes) {
    double slowest = 0;
    for (int from = 0; from < ranks; ++from) {
      double seconds = 0;
      for (int to = 0; to < ranks; ++to) {
        const int64_t count = call.counts[static_cast<size_t>(from) * ranks + to];
        if (to == from || count == 0) continue;
        seconds += network.latency_seconds +
                   static_cast<double>(count * samples * element_bytes) / network.bytes_per_second;
      }
      slowest = std::max(slowest, seconds);
    }
    return slowest;
  };
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
                    int64_t element_bytes, const SecondsOfCall& seconds_of) {
  ContextCost cost{.way = way, .attention_seconds = attention_seconds(attention, way, samples)};
  for (const ContextCall& call : layout::context_calls(attention, way)) {
    const int64_t bytes = call.is_sum ? std::max<int64_t>(4, element_bytes) : element_bytes;
    (call.is_backward ? cost.backward_bytes : cost.forward_bytes) += samples * bytes * call.sent();
    cost.transfer_seconds += seconds_of(call, bytes);
  }
  return cost;
}

bool serves(const ContextAttention& attention, ContextWay way) {
  return way == ContextWay::kUlysses ? attention.heads >= attention.ranks
                                     : attention.tokens >= 2 * attention.ranks;
}

std::vector<ContextCost> compare(const ContextAttention& attention, int64_t samples,
                                 int64_t element_bytes, const SecondsOfCall& seconds_of) {
  std::vector<ContextCost> costs;
  for (const ContextWay way : {ContextWay::kUlysses, ContextWay::kRing}) {
    if (!serves(attention, way)) continue;
    costs.push_back(cost_of(attention, way, samples, element_bytes, seconds_of));
  }
  std::ranges::stable_sort(costs, {}, &ContextCost::seconds);
  return costs;
}

}  // namespace

std::vector<ContextCost> compare_context(const ContextAttention& attention, int64_t samples,
                                         int64_t element_bytes, const cost::Rates& rates) {
  return compare(attention, samples, element_bytes, on_host(attention.ranks, samples, rates));
}

std::vector<ContextCost> compare_context(const ContextAttention& attention, int64_t samples,
                                         int64_t element_bytes, const cost::Network& network) {
  return compare(attention, samples, element_bytes, on_network(attention.ranks, samples, network));
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
