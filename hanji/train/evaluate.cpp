#include "hanji/train/evaluate.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <array>
#include <functional>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "hanji/comm/barrier.h"
#include "hanji/comm/host_values.h"
#include "hanji/data/batch.h"
#include "hanji/data/validation_reader.h"
#include "hanji/layers/model.h"
#include "hanji/schedule/action.h"
#include "hanji/trace/recorder.h"
#include "hanji/train/grain_sums.h"

namespace hanji::train {
namespace {

constexpr int64_t kNumSums = 3;

/// Loss, number of targets, metric.
using Sums = std::array<double, kNumSums>;

Sums sums_of(layers::Model& model, layers::Flow flow, const layers::Batch& batch) {
  const double metric = model.metric_sum(flow, batch);
  const layers::LossSum loss = model.loss(std::move(flow), batch);
  return {loss.sum.item<double>(), static_cast<double>(loss.count), metric};
}

Evaluation means_of(std::span<const double> sums) {
  return {.loss = sums[0] / sums[1],
          .metric = sums[2] / sums[1],
          .num_targets = static_cast<int64_t>(sums[1])};
}

/// Stages are at different micro-batches, so that ranks that share batches read as many at once as there
/// is room for; those of a pipeline alike, also on hosts where one is alone.
size_t micro_batches_of_a_read(const Job& job, const EvaluateInputs& inputs) {
  if (!job.stages && !inputs.batches.are_shared()) return 1;
  return std::max<int64_t>(1, inputs.batches.capacity() / inputs.micro_batch);
}

/// Runs the forwards of this rank's stages. `add`: what the last one has of each micro-batch.
void forward_all(Job& job, std::span<const layout::Range> cuts,
                 const std::vector<layers::Batch>& batches,
                 const std::function<void(int64_t micro_batch, const Sums&)>& add) {
  std::vector<int64_t> sizes;
  for (const layout::Range& one : cuts) sizes.push_back(one.size());
  const auto forward = [&](const schedule::Action& action) {
    const layers::Batch here = batches[action.micro_batch].to(job.device);
    layers::Flow flow = job.pipeline.forward(action, here, job.strategy->scopes());
    if (action.stage != job.pipeline.stages().last()) return;
    add(action.micro_batch, sums_of(*job.model, std::move(flow), here));
  };
  job.pipeline.run(schedule::forward_actions(job.pipeline.stages().ranks,
                                             job.pipeline.group().rank(), std::ssize(cuts)),
                   sizes, {.forward = forward});
}

/// Threads begin on the rank that reads, with its first batch.
void read_places(const data::Source& samples, const EvaluateInputs& inputs, layout::Range positions,
                 layers::Batch& batch, SharedBatches::Use use,
                 std::optional<data::ValidationReader>& ahead) {
  if (inputs.reading.workers == 0) {
    return data::read_validation_batch(samples, inputs.num_samples, positions, batch);
  }
  if (!ahead) {
    ahead.emplace(samples, inputs.num_samples, inputs.share, inputs.micro_batch, inputs.reading);
  }
  inputs.batches.hand_over(ahead->read(positions), batch, use);
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
  const std::vector<layout::Range> cuts = data::cut(inputs.share, inputs.micro_batch);
  std::optional<data::ValidationReader> ahead;
  std::vector<layers::Batch> batches(micro_batches_of_a_read(job, inputs));
  using Use = SharedBatches::Use;
  const Use use = batches.size() > 1 ? Use::kLonger : Use::kUntilNext;
  const auto& stages = job.pipeline.stages();
  const auto for_own_stages = [&](const auto& call) {
    for (int stage = 0; inputs.holds_stages && stage <= stages.last(); ++stage) {
      if (job.pipeline.has(stage)) call(stages.layers[stage]);
    }
  };
  for_own_stages([&](layout::Range layers) { job.strategy->unshard(layers); });
  for (size_t begin = 0; begin < cuts.size(); begin += batches.size()) {
    const auto round =
        std::span(cuts).subspan(begin, std::min(batches.size(), cuts.size() - begin));
    inputs.batches.read(round, batches, [&](layout::Range positions, layers::Batch& into) {
      read_places(samples, inputs, positions, into, use, ahead);
    });
    if (inputs.batches.are_shared()) comm::barrier(*job.readers, {.label = "batch"});
    forward_all(job, round, batches, [&](int64_t micro_batch, const Sums& one) {
      const auto leaf = static_cast<int64_t>(begin) + micro_batch;
      if (by_tree) by_tree->add(inputs.tree->owners[job.data.rank()].begin + leaf, one);
      for (size_t i = 0; i < one.size(); ++i) values[i] += one[i];
    });
  }
  for_own_stages([&](layout::Range layers) { job.strategy->reshard(layers); });
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
