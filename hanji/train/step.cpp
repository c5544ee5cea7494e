#include "hanji/train/step.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <utility>
#include <vector>

#include "hanji/comm/all_gather.h"
#include "hanji/comm/host_values.h"
#include "hanji/layers/model.h"
#include "hanji/parallel/grad_norm.h"
#include "hanji/trace/recorder.h"
#include "hanji/train/statistics_sum.h"

namespace hanji::train {
namespace {

using schedule::Action;
using schedule::ActionKind;
using trace::Category;
using trace::Span;

/// What ranks of different data coordinates tell each other at the end of a step, in one small
/// collective; ranks of the same one have the same to say.
struct Totals {
  double loss_sum = 0;
  double num_targets = 0;
  double num_interrupts = 0;  ///< Data coordinates that SIGINT told to stop,
  double num_requeues = 0;    ///< and those that any other signal told.
  StatisticsSum statistics = {};

  std::vector<double> values(int64_t num_statistics) const {
    std::vector<double> all = {loss_sum, num_targets, num_interrupts, num_requeues};
    all.insert(all.end(), statistics.sums().begin(), statistics.sums().end());
    all.resize(kNumTotals + num_statistics);  // those of later layers are other ranks'
    return all;
  }
};

Totals totals_of(std::span<const double> values) {
  return {values[0], values[1], values[2], values[3], StatisticsSum(values.subspan(kNumTotals))};
}

std::vector<double> sum_over_data(const std::vector<double>& mine, const comm::Group& data) {
  at::Tensor tensor = at::tensor(mine, at::kDouble);
  comm::all_reduce_on_host(tensor, data, {.label = "totals"});
  return {tensor.const_data_ptr<double>(), tensor.const_data_ptr<double>() + mine.size()};
}

/// Losses of the last stage, and statistics of each stage from the rank that has it.
void take_from_stages(std::vector<double>& values, const Job& job) {
  at::Tensor totals = at::tensor(std::vector(values.begin(), values.begin() + kNumTotals));
  take_from_last_stage(totals, job, "totals");
  std::copy_n(totals.const_data_ptr<double>(), kNumTotals, values.begin());
  const int64_t count = std::ssize(values) - kNumTotals;
  if (count == 0) return;
  const at::Tensor own = at::tensor(std::vector(values.begin() + kNumTotals, values.end()));
  const std::vector<int64_t> counts(job.stages->size(), count);
  at::Tensor all = at::empty({job.stages->size() * count}, at::kDouble);
  comm::all_gather(all, own, counts, *job.stages, {.label = "statistics"}).wait();
  const parallel::Stages& stages = job.pipeline.stages();
  for (int stage = 0; stage <= stages.last(); ++stage) {
    const layout::Range layers = stages.layers[stage];
    const int64_t first = job.model->num_statistics({0, layers.begin});
    const double* row = all.const_data_ptr<double>() + stages.ranks[stage] * count;
    std::copy_n(row + first, job.model->num_statistics(layers),
                values.begin() + kNumTotals + first);
  }
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

/// Walks this rank's actions of one step.
class StepWalk {
 public:
  StepWalk(Job& job, const plan::TrainConfig& train, const StepInputs& inputs)
      : job_(job), train_(train), inputs_(inputs), mine_(told(job, inputs)) {
    under_way_.resize(inputs.micro_batches.size());
    const parallel::Stages& stages = job_.pipeline.stages();
    while (!job_.pipeline.has(first_stage_) && first_stage_ < stages.last()) ++first_stage_;
  }

  /// What all data coordinates have computed. Gradients have left with the backward that completed them;
  /// losses follow.
  Totals run() {
    std::vector<int64_t> sizes;
    for (const layers::Batch& one : inputs_.micro_batches) sizes.push_back(one.size());
    job_.pipeline.run(
        inputs_.actions, sizes,
        {.forward = [&](const Action& action) { forward(action); },
         .backward = [&](const Action& action, bool is_last) { backward(action, is_last); },
         .unshard = [&](const Action& action) { job_.strategy->unshard(layers_of(action)); },
         .reshard = [&](const Action& action) { job_.strategy->reshard(layers_of(action)); }});
    inputs_.meanwhile();
    return totals();
  }

 private:
  /// Of each grain by itself, where bits are stable; else of all micro-batches.
  bool by_grain() const { return job_.totals.has_value(); }

  void forward(const Action& action) {
    const layers::Batch& batch = inputs_.micro_batches[action.micro_batch];
    if (by_grain() && !job_.stages) begin_grain(job_, grain_of(action), 0);
    layers::Batch here = batch.to(job_.device);
    here.counters = {.seed = static_cast<uint64_t>(train_.seed), .step = inputs_.number};
    if (num_under_way_++ == 0) inputs_.memory.begin_forward(job_.strategy->rounded_bytes());
    const Span span(job_.group.recorder(), "forward", Category::kCompute);
    UnderWay& pass = under_way_[action.micro_batch];
    layers::Flow flow = job_.pipeline.forward(action, here, job_.scopes);
    job_.strategy->drop_rounded();
    if (is_last_stage(action)) pass.loss = job_.model->loss(std::move(flow), here);
    const layout::Range layers = layers_of(action);
    pass.statistics.add(job_.model->statistics(layers), batch.size(),
                        job_.model->num_statistics({0, layers.begin}));
  }

  void backward(const Action& action, bool completes_gradients) {
    if (action.kind == ActionKind::kBackwardWeight)
      return differentiate(action, {}, completes_gradients);
    UnderWay& pass = under_way_[action.micro_batch];
    const layers::LossSum loss = std::exchange(pass.loss, {});
    --num_under_way_;
    inputs_.memory.begin_backward();
    differentiate(action, loss.sum, completes_gradients);
    inputs_.memory.end_backward();
    if (is_last_stage(action)) {
      pass.loss_sum = loss.sum.detach().reshape({});
      pass.num_targets = static_cast<double>(loss.count);
    }
    if (action.stage != first_stage_) return;
    if (pass.loss_sum.defined()) losses_.push_back(pass.loss_sum);
    mine_.num_targets += pass.num_targets;
    mine_.statistics.add(std::exchange(pass, {}).statistics);
    if (by_grain()) {
      read_losses();
      job_.totals->add(grain_of(action), std::exchange(mine_, {}).values(num_statistics()));
    }
  }

  void differentiate(const Action& action, const at::Tensor& loss, bool completes_gradients) {
    const bool adds = job_.pipeline.stages().adds_gradients(action);
    if (adds && by_grain() && job_.stages) begin_grain(job_, grain_of(action), action.stage);
    const bool is_whole = adds && action.kind != ActionKind::kBackwardWeight;
    const Span span(job_.group.recorder(), is_whole ? "backward" : name_of(action.kind),
                    Category::kCompute);
    if (!adds || completes_gradients || by_grain()) {
      job_.pipeline.backward(action, loss);
    } else {
      job_.strategy->accumulate([&] { job_.pipeline.backward(action, loss); });
    }
  }

  /// All in one read: each of a device waits for what it has to do before.
  void read_losses() {
    if (losses_.empty()) return;
    const at::Tensor all = at::stack(std::exchange(losses_, {})).to(at::kCPU, at::kDouble);
    for (int64_t i = 0; i < all.numel(); ++i) mine_.loss_sum += all.const_data_ptr<double>()[i];
  }

  int64_t num_statistics() const { return job_.model->num_statistics(); }

  layout::Range layers_of(const Action& action) const {
    return job_.pipeline.stages().layers[action.stage];
  }

  int64_t grain_of(const Action& action) const {
    return inputs_.micro_batches[action.micro_batch].positions.begin / train_.grain;
  }

  bool is_last_stage(const Action& action) const {
    return action.stage == job_.pipeline.stages().last();
  }

  Totals totals() {
    std::vector<double> all;
    read_losses();
    if (by_grain()) {
      const auto sums = job_.totals->total();
      all.assign(sums.begin(), sums.end());
    } else {
      all = sum_over_data(mine_.values(num_statistics()), job_.data);
    }
    if (job_.stages) take_from_stages(all, job_);
    return totals_of(all);
  }

  /// Of a micro-batch between its first forward on this rank and its last backward.
  struct UnderWay {
    layers::LossSum loss;
    at::Tensor loss_sum = {};
    double num_targets = 0;
    StatisticsSum statistics;
  };

  Job& job_;
  const plan::TrainConfig& train_;
  const StepInputs& inputs_;
  std::vector<UnderWay> under_way_;
  int64_t num_under_way_ = 0;       ///< In all stages.
  std::vector<at::Tensor> losses_;  ///< Not read yet.
  int first_stage_ = 0;             ///< Of this rank, whose backward is a micro-batch's last.
  Totals mine_;
};

}  // namespace

StepResult run_step(Job& job, const plan::TrainConfig& train, const StepInputs& inputs) {
  job.strategy->begin_step();
  const Totals all = StepWalk(job, train, inputs).run();
  const Span span(job.group.recorder(), "optimizer", Category::kCompute);
  StepResult result{.loss = all.loss_sum / all.num_targets,
                    .num_targets = static_cast<int64_t>(all.num_targets),
                    .stop_signal = stop_signal(all)};
  sum_tied_gradients(job);
  result.gradient_norm = gradient_norm(job) / all.num_targets;
  // Losses and reduced gradients are the same bits on every rank, and so is this decision.
  result.updated = std::isfinite(result.loss) && std::isfinite(result.gradient_norm);
  if (result.updated) {
    inputs.before_update();
    job.strategy->update(
        inputs.learning_rate,
        all.num_targets * parallel::clip_divisor(result.gradient_norm, train.clip));
    all.statistics.update(*job.model, train.global_batch);
  }
  return result;
}

}  // namespace hanji::train
