#include "hanji/train/step.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <csignal>

#include "hanji/comm/host_values.h"
#include "hanji/layers/model.h"
#include "hanji/parallel/grad_norm.h"
#include "hanji/trace/recorder.h"

namespace hanji::train {
namespace {

using trace::Category;
using trace::Span;

/// What ranks of different data coordinates tell each other at the end of a step, in one small
/// collective; ranks of the same one have the same to say.
struct Totals {
  double loss_sum = 0;
  double num_tokens = 0;
  double num_interrupts = 0;  ///< Data coordinates that SIGINT told to stop,
  double num_requeues = 0;    ///< and those that any other signal told.

  std::array<double, kNumTotals> values() const {
    return {loss_sum, num_tokens, num_interrupts, num_requeues};
  }
};

Totals totals_of(std::span<const double> values) {
  return {values[0], values[1], values[2], values[3]};
}

Totals sum_over_data(const Totals& mine, const comm::Group& data) {
  at::Tensor tensor = at::empty({kNumTotals}, at::kDouble);
  const std::span values(tensor.mutable_data_ptr<double>(), kNumTotals);
  std::ranges::copy(mine.values(), values.begin());
  comm::all_reduce_on_host(tensor, data, {.label = "totals"});
  return totals_of(values);
}

/// One rank of a data coordinate was told, and all of them stop.
void share_stop(Totals& mine, const comm::Group& peers) {
  at::Tensor told = at::empty({2}, at::kDouble);
  auto* values = told.mutable_data_ptr<double>();
  values[0] = mine.num_interrupts;
  values[1] = mine.num_requeues;
  comm::all_reduce_on_host(told, peers, {.op = schedule::ReduceOp::kMax, .label = "stop"});
  mine.num_interrupts = values[0];
  mine.num_requeues = values[1];
}

/// What this data coordinate has to say before it computes.
Totals told(const Job& job, const StepInputs& inputs) {
  Totals mine;
  if (inputs.stop_signal != 0) {
    (inputs.stop_signal == SIGINT ? mine.num_interrupts : mine.num_requeues) = 1;
  }
  if (job.peers) share_stop(mine, *job.peers);
  return mine;
}

// An interrupt wins: the user wants the run ended, not queued again.
int stop_signal(const Totals& all) {
  if (all.num_interrupts > 0) return SIGINT;
  return all.num_requeues > 0 ? SIGTERM : 0;
}

double forward_backward(Job& job, const plan::TrainConfig& train, const StepInputs& inputs,
                        const layers::Batch& batch) {
  layers::Batch here = batch.to(job.device);
  here.counters = {.seed = static_cast<uint64_t>(train.seed), .step = inputs.number};
  inputs.memory.begin_forward();
  layers::LossSum loss;
  {
    const Span span(job.group.recorder(), "forward", Category::kCompute);
    loss = job.model->loss_sum(here, job.scopes);
  }
  inputs.memory.begin_backward();
  const Span span(job.group.recorder(), "backward", Category::kCompute);
  loss.sum.backward();
  inputs.memory.end_backward();
  return loss.sum.item<double>();
}

/// Micro-batches as large as the plan lets them be; only the last one communicates.
Totals run_micro_batches(Job& job, const plan::TrainConfig& train, const StepInputs& inputs) {
  Totals mine = told(job, inputs);
  for (const layers::Batch& batch : inputs.micro_batches.first(inputs.micro_batches.size() - 1)) {
    job.strategy->accumulate([&] { mine.loss_sum += forward_backward(job, train, inputs, batch); });
  }
  mine.loss_sum += forward_backward(job, train, inputs, inputs.micro_batches.back());
  for (const layers::Batch& batch : inputs.micro_batches) {
    mine.num_tokens += static_cast<double>(batch.num_valid);
  }
  return sum_over_data(mine, job.data);
}

/// Stable: one forward and backward per grain; losses are summed as gradients are.
Totals run_grains(Job& job, const plan::TrainConfig& train, const StepInputs& inputs) {
  Totals grain = told(job, inputs);
  for (const layers::Batch& batch : inputs.micro_batches) {
    job.strategy->begin_grain(batch.positions.begin / train.grain);
    grain.loss_sum = forward_backward(job, train, inputs, batch);
    grain.num_tokens = static_cast<double>(batch.num_valid);
    job.totals->add(grain.values());
    grain = {};
  }
  return totals_of(job.totals->total());
}

}  // namespace

StepResult run_step(Job& job, const plan::TrainConfig& train, const StepInputs& inputs) {
  job.strategy->begin_step();
  const Totals all =
      job.totals ? run_grains(job, train, inputs) : run_micro_batches(job, train, inputs);
  const Span span(job.group.recorder(), "optimizer", Category::kCompute);
  StepResult result{.loss = all.loss_sum / all.num_tokens,
                    .num_tokens = static_cast<int64_t>(all.num_tokens),
                    .stop_signal = stop_signal(all)};
  result.gradient_norm = job.strategy->gradient_norm() / all.num_tokens;
  // Losses and reduced gradients are the same bits on every rank, and so is this decision.
  result.updated = std::isfinite(result.loss) && std::isfinite(result.gradient_norm);
  if (result.updated) {
    inputs.before_update();
    job.strategy->update(inputs.learning_rate,
                         all.num_tokens * parallel::clip_divisor(result.gradient_norm, train.clip));
  }
  return result;
}

}  // namespace hanji::train
