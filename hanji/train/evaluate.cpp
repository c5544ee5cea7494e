#include "hanji/train/evaluate.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
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
std::array<double, kNumSums> sums_of(layers::Model& model, layers::Flow flow,
                                     const layers::Batch& batch) {
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
  // Stages are at different micro-batches, so that each reads for itself.
  SharedBatches own(std::nullopt, samples.shape(), inputs.micro_batch);
  SharedBatches& batches = job.stages ? own : inputs.batches;
  const std::vector<layout::Range> cuts = data::cut(inputs.share, inputs.micro_batch);
  const auto fill = [&](layout::Range positions, layers::Batch& into) {
    data::read_validation_batch(samples, inputs.num_samples, positions, into);
  };
  std::vector<int64_t> sizes;
  for (const layout::Range& one : cuts) sizes.push_back(one.size());
  const auto forward = [&](const schedule::Action& action) {
    batches.read({&cuts[action.micro_batch], 1}, {&batch, 1}, fill);
    if (batches.are_shared()) comm::barrier(*job.peers, {.label = "batch"});
    const layers::Batch here = batch.to(job.device);
    layers::Flow flow = job.pipeline.forward(action, here, job.strategy->scopes());
    if (action.stage != job.pipeline.stages().last()) return;
    const std::array one = sums_of(*job.model, std::move(flow), here);
    if (by_tree) {
      by_tree->add(inputs.tree->owners[job.data.rank()].begin + action.micro_batch, one);
    }
    for (size_t i = 0; i < one.size(); ++i) values[i] += one[i];
  };
  const auto& stages = job.pipeline.stages();
  job.pipeline.run(schedule::forward_actions(stages.ranks, job.pipeline.group().rank(),
                                             static_cast<int64_t>(cuts.size())),
                   sizes, {.forward = forward});
  job.model->train();
  if (by_tree) {
    std::ranges::copy(by_tree->total(), values);
  } else {
    comm::all_reduce_on_host(totals, job.data, {.label = "evaluation"});
  }
  take_from_last_stage(totals, job, "evaluation");
  return means_of({values, kNumSums});
}

}  // namespace hanji::train
