#include "hanji/train/evaluate.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>

#include <array>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "hanji/comm/barrier.h"
#include "hanji/comm/host_values.h"
#include "hanji/data/batch.h"
#include "hanji/layers/model.h"
#include "hanji/schedule/action.h"
#include "hanji/trace/recorder.h"
#include "hanji/train/grain_sums.h"

namespace hanji::train {
namespace {

constexpr int64_t kNumSums = 3;

/// Loss, number of targets, metric.
std::array<double, kNumSums> sums_of(layers::Model& model, const layers::Batch& batch,
                                     const std::vector<layers::LayerScope>& scopes) {
  layers::Flow flow = model.forward({0, model.num_layers()}, {}, batch, scopes);
  const double metric = model.metric_sum(flow, batch);
  const layers::LossSum loss = model.loss(std::move(flow), batch);
  return {loss.sum.item<double>(), static_cast<double>(loss.count), metric};
}

Evaluation means_of(std::span<const double> sums) {
  return {.loss = sums[0] / sums[1], .metric = sums[2] / sums[1]};
}

}  // namespace

Evaluation evaluate(Job& job, const data::Source& samples, const EvaluateInputs& inputs) {
  const trace::Span span(job.group.recorder(), "evaluate", trace::Category::kCompute);
  const at::NoGradGuard no_grad;
  std::optional<GrainSums> by_tree;
  if (inputs.tree) by_tree.emplace(*inputs.tree, job.data, kNumSums);
  at::Tensor totals = at::zeros({kNumSums}, at::kDouble);
  auto* values = totals.mutable_data_ptr<double>();
  job.model->eval();
  layers::Batch batch;
  const std::vector<layout::Range> cuts = data::cut(inputs.share, inputs.micro_batch);
  const auto fill = [&](layout::Range positions, layers::Batch& into) {
    data::read_validation_batch(samples, inputs.num_samples, positions, into);
  };
  for (const schedule::Action& forward :
       schedule::forward_actions(static_cast<int64_t>(cuts.size()))) {
    inputs.batches.read({&cuts[forward.micro_batch], 1}, {&batch, 1}, fill);
    if (inputs.batches.are_shared()) comm::barrier(*job.peers, {.label = "batch"});
    const std::array one = sums_of(*job.model, batch.to(job.device), job.strategy->scopes());
    if (by_tree) by_tree->add(one);
    for (size_t i = 0; i < one.size(); ++i) values[i] += one[i];
  }
  job.model->train();
  if (by_tree) {
    const auto all = by_tree->total();
    return means_of(all);
  }
  comm::all_reduce_on_host(totals, job.data, {.label = "evaluation"});
  return means_of({values, kNumSums});
}

}  // namespace hanji::train
