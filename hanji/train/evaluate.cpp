#include "hanji/train/evaluate.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>

#include <array>
#include <optional>

#include "hanji/comm/host_values.h"
#include "hanji/data/batch.h"
#include "hanji/layers/model.h"
#include "hanji/trace/recorder.h"
#include "hanji/train/grain_sums.h"

namespace hanji::train {

double evaluate(Job& job, const data::TokenSamples& samples, const EvaluateInputs& inputs) {
  const trace::Span span(job.group.recorder(), "evaluate", trace::Category::kCompute);
  const at::NoGradGuard no_grad;
  std::optional<GrainSums> by_tree;
  if (inputs.tree) by_tree.emplace(*inputs.tree, job.data, 2);
  at::Tensor totals = at::zeros({2}, at::kDouble);
  auto* values = totals.mutable_data_ptr<double>();
  job.model->eval();
  layers::Batch batch;
  for (const layout::Range positions : data::cut(inputs.share, inputs.micro_batch)) {
    data::read_validation_batch(samples, inputs.num_samples, positions, batch);
    const layers::LossSum loss = job.model->loss_sum(batch.to(job.device));
    const std::array one = {loss.sum.item<double>(), static_cast<double>(loss.count)};
    if (by_tree) by_tree->add(one);
    for (size_t i = 0; i < one.size(); ++i) values[i] += one[i];
  }
  job.model->train();
  if (by_tree) {
    const auto all = by_tree->total();
    return all[0] / all[1];
  }
  comm::all_reduce_on_host(totals, job.data, {.label = "evaluation"});
  return values[0] / values[1];
}

}  // namespace hanji::train
