#include "hanji/train/evaluate.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include "hanji/comm/all_reduce.h"
#include "hanji/data/batch.h"
#include "hanji/trace/recorder.h"

namespace hanji::train {

double evaluate(Job& job, const data::TokenSamples& samples, const EvaluateInputs& inputs) {
  const trace::Span span(job.group.recorder(), "evaluate", trace::Category::kCompute);
  const at::NoGradGuard no_grad;
  at::Tensor totals = at::empty({2}, at::kDouble);
  auto* values = totals.mutable_data_ptr<double>();
  values[0] = values[1] = 0;
  job.model->eval();
  data::Batch batch;
  for (const layout::Range positions : data::cut(inputs.share, inputs.micro_batch)) {
    data::read_validation_batch(samples, inputs.num_samples, positions, batch);
    values[0] += job.model->loss_sum(batch.tokens, batch.targets).item<double>();
    values[1] += static_cast<double>(batch.targets.numel());
  }
  job.model->train();
  comm::all_reduce(totals, job.group, {.label = "evaluation"}).wait();
  return values[0] / values[1];
}

}  // namespace hanji::train
