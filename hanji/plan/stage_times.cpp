#include "hanji/plan/stage_times.h"
#include "hanji/base/units.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <string>

namespace hanji::plan {
namespace {

/// Of forward and backward: one of three products of equal size, and about that of the rest.
constexpr double kForwardOfPass = 1.0 / 3;
/// Of a product's backward: two products of equal size.
constexpr double kWeightOfBackward = 1.0 / 2;

schedule::StageSeconds& operator+=(schedule::StageSeconds& sum, const schedule::StageSeconds& one) {
  sum.forward += one.forward;
  sum.backward_input += one.backward_input;
  sum.backward_weight += one.backward_weight;
  return sum;
}

/// Of one call; without a forward, what it takes as a rule.
CallSeconds call_of(const Operation& one, const std::map<std::string, CallSeconds>& timed) {
  const auto found = timed.find(one.name);
  CallSeconds call = found == timed.end() ? CallSeconds{.seconds = one.estimate} : found->second;
  if (call.forward == 0) call.forward = kForwardOfPass * call.seconds;
  return call;
}

/// Of so many calls of one operation. The forward that a repeated layer runs again is in the count, and
/// belongs to the backward.
schedule::StageSeconds parts_of(double count, CallSeconds call, bool is_product,
                                const LayerFacts& layer) {
  const double once = count / (layer.is_repeated ? 1 + kForwardOfPass : 1);
  const bool defers = is_product && layer.for_weights;
  const double weight = defers ? kWeightOfBackward * (call.seconds - call.forward) : 0;
  return {once * call.forward, count * call.seconds - once * (call.forward + weight),
          once * weight};
}

schedule::StageSeconds scaled(const schedule::StageSeconds& one, double by) {
  return {by * one.forward, by * one.backward_input, by * one.backward_weight};
}

/// Of all that its facts count, as on a modest core.
schedule::StageSeconds layer_estimate(const LayerFacts& layer, int64_t samples) {
  const double attention = layer.attention ? layer.attention->flops() : 0;
  const double seconds =
      estimated_seconds(layer.product_flops() + attention, layer.elementwise_bytes);
  const double count = static_cast<double>(samples) * (layer.is_repeated ? 1 + kForwardOfPass : 1);
  return parts_of(count, {seconds, kForwardOfPass * seconds}, true, layer);
}

/// Where nothing was timed, operations share out the layer's estimate.
schedule::StageSeconds layer_times(const LayerFacts& layer, int64_t samples,
                                   const std::map<std::string, CallSeconds>& timed) {
  ModelFacts alone;
  alone.layers.push_back(layer);
  schedule::StageSeconds all{0, 0, 0};
  for (const Operation& one : operations_of(alone, samples)) {
    all += parts_of(one.count, call_of(one, timed), one.kind == OperationKind::kProduct, layer);
  }
  const schedule::StageSeconds estimate = layer_estimate(layer, samples);
  if (all.whole() <= 0) return estimate;
  return timed.empty() ? scaled(all, estimate.whole() / all.whole()) : all;
}

/// Of so many samples, by the names that the model's facts give their operations. Seconds of operations under other
/// names are shared out by the estimates.
std::vector<schedule::StageSeconds> layers_by_names(const ModelFacts& model, int64_t samples,
                                                    const OperationTimes& times) {
  std::map<std::string, CallSeconds> timed;
  for (const TimedOperation& one : times.operations) timed[one.name] = {one.seconds, one.forward};
  std::vector<schedule::StageSeconds> all;
  double sum = 0;
  for (const LayerFacts& layer : model.layers) {
    all.push_back(layer_times(layer, samples, timed));
    sum += all.back().whole();
  }
  if (times.samples == 0 || sum <= 0) return all;
  const double scale = times.seconds_of(static_cast<double>(samples)) / sum;
  for (schedule::StageSeconds& one : all) one = scaled(one, scale);
  return all;
}

}  // namespace

std::vector<layout::Range> cut_stages(std::span<const double> seconds, int num_stages) {
  const auto layers = static_cast<int64_t>(seconds.size());
  std::vector<double> before(layers + 1);
  std::partial_sum(seconds.begin(), seconds.end(), before.begin() + 1);
  // least[s][i]: the longest of s + 1 stages that have the layers from i on; end[s][i]: of the first.
  std::vector<std::vector<double>> least(num_stages);
  std::vector<std::vector<int64_t>> end(num_stages, std::vector<int64_t>(layers + 1, layers));
  for (int s = 0; s < num_stages; ++s) {
    least[s].assign(layers + 1, std::numeric_limits<double>::infinity());
    for (int64_t i = 0; i + s < layers; ++i) {
      if (s == 0) least[s][i] = before[layers] - before[i];
      for (int64_t j = i + 1; s > 0 && j + s <= layers; ++j) {
        const double longest = std::max(before[j] - before[i], least[s - 1][j]);
        if (longest >= least[s][i]) continue;
        least[s][i] = longest;
        end[s][i] = j;
      }
    }
  }
  std::vector<layout::Range> stages;
  for (int64_t begin = 0, s = num_stages - 1; s >= 0; --s) {
    stages.push_back({begin, end[s][begin]});
    begin = stages.back().end;
  }
  return stages;
}

bool splits_backward(const ModelFacts& model, layout::Range layers) {
  return std::any_of(model.layers.begin() + layers.begin, model.layers.begin() + layers.end,
                     [](const LayerFacts& one) { return one.for_weights.has_value(); });
}

std::vector<schedule::StageSeconds> layer_times(const ModelFacts& model,
                                                const OperationTimes& times) {
  const int64_t samples = std::max<int64_t>(1, times.samples);
  std::vector<schedule::StageSeconds> all = times.layers.size() == model.layers.size()
                                                ? times.layers
                                                : layers_by_names(model, samples, times);
  for (schedule::StageSeconds& one : all) one = scaled(one, 1 / static_cast<double>(samples));
  return all;
}

std::vector<schedule::StageSeconds> sort_by_layers(const ModelFacts& model,
                                                   std::span<const Operation> operations,
                                                   std::span<const TimedOperation> timed) {
  std::map<std::string_view, double> seconds;
  for (const TimedOperation& one : timed) seconds[one.name] = one.seconds;
  std::vector<schedule::StageSeconds> all(model.layers.size(), {0, 0, 0});
  for (const Operation& one : operations) {
    const double call = seconds.at(one.name);
    for (size_t i = 0; i < std::min(all.size(), one.layers.size()); ++i) {
      const auto& [forward, repeated, backward] = one.layers[i];
      const bool defers = one.is_product && model.layers[i].for_weights;
      const double weight = defers ? kWeightOfBackward * backward : 0;
      all[i] += {forward * call, (repeated + backward - weight) * call, weight * call};
    }
  }
  return all;
}

std::vector<double> layer_seconds(const ModelFacts& model, const OperationTimes& times) {
  std::vector<double> all;
  for (const schedule::StageSeconds& one : layer_times(model, times)) all.push_back(one.whole());
  return all;
}

std::vector<schedule::StageSeconds> stage_times(const ModelFacts& model,
                                                const OperationTimes& times,
                                                std::span<const layout::Range> stages,
                                                double samples) {
  const std::vector<schedule::StageSeconds> layers = layer_times(model, times);
  std::vector<schedule::StageSeconds> all;
  for (const layout::Range stage : stages) {
    schedule::StageSeconds sum{0, 0, 0};
    const bool splits = splits_backward(model, stage);
    for (int64_t i = stage.begin; i < stage.end; ++i) {
      const auto& [forward, input, weight] = layers[i];
      const double later = !splits ? 0 : i == 0 ? input + weight : weight;
      sum += {samples * forward, samples * (input + weight - later), samples * later};
    }
    all.push_back(sum);
  }
  return all;
}

Result<std::vector<schedule::StageSeconds>> stage_times(const ModelFacts& model,
                                                        const OperationTimes& times, int num_stages,
                                                        double samples) {
  const std::vector<double> seconds = layer_seconds(model, times);
  if (std::ssize(seconds) >= num_stages) {
    return stage_times(model, times, cut_stages(seconds, num_stages), samples);
  }
  return base::invalid_argument(
      fmt::format("{}, but the model has {}; take fewer ranks or stages of a rank",
                  base::counted(num_stages, "stage"), base::counted(seconds.size(), "layer")));
}

}  // namespace hanji::plan
