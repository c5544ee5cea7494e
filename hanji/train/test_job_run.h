#pragma once

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "hanji/compute/apply.h"
#include "hanji/layers/model.h"
#include "hanji/parallel/tensor/axis.h"
#include "hanji/plan/test_plan.h"
#include "hanji/test/run_ranks.h"
#include "hanji/train/loop.h"

namespace hanji::train {

/// Of float64 sums in another order, through steps whose update divides by roots of squares.
inline constexpr double kAdamDifference = 1e-9;
/// The same where an update adds the gradient, as descend() does: some thousand roundings of 1e-16.
inline constexpr double kSgdDifference = 1e-12;

/// Of a GPT that computes in float64 with dropout; 7 samples, so that shares and micro-batches differ.
inline plan::PlanInputs float64_job(const Dataset& dataset) {
  plan::PlanInputs inputs = plan::test_plan::two_cores();
  inputs.data = dataset.facts();
  inputs.kernels = {plan::Gemm::kMkl, plan::Attention::kMath, plan::Precision::kFloat64};
  plan::Config& config = inputs.config;
  config.compute.dtype = plan::Precision::kFloat64;
  config.model.layers = 4;
  config.model.heads = 2;
  config.model.width = 16;
  config.model.block = 8;
  config.model.dropout = 0.1;
  config.train.steps = 4;
  config.train.global_batch = 7;
  config.train.warmup_steps = 0;
  config.train.clip = 0.5;
  config.train.evaluate_batches = 1;
  return inputs;
}

/// What one rank ends with.
struct JobRun {
  layout::Cut cut;
  std::map<std::string, at::Tensor> parameters;
  std::vector<double> losses;  ///< Of the steps, then of the validation.
  std::vector<double> norms;
  int64_t num_skipped = 0, wire_bytes = 0, network_bytes = 0, collectives = 0;
};

/// What a test does to a rank.
struct Tampering {
  std::function<void(const comm::Group&)> before_start = [](const comm::Group&) {};
  std::function<Job(const plan::Plan&, const comm::Group&)> make =
      [](const plan::Plan& plan, const comm::Group& group) { return assemble(plan, group); };
  std::function<void(Job&)> at_start = [](Job&) {};
  std::function<void(Job&)> before_update = [](Job&) {};
  std::function<void(schedule::ActionList&)> actions = [](schedule::ActionList&) {};
  std::function<void(const Job&)> at_end = [](const Job&) {};
};

inline JobRun run_rank(const plan::Plan& plan, const Dataset& dataset, const comm::Group& group,
                       const Tampering& tampering) {
  compute::apply(plan.kernels, 1);
  JobRun run;
  PrivateMemory memory;
  StopSignal stop = StopSignal::create().or_throw();
  tampering.before_start(group);
  Job job = tampering.make(plan, group);
  tampering.at_start(job);
  LoopInputs inputs{.plan = plan,
                    .dataset = dataset,
                    .memory = memory,
                    .stop = stop,
                    .save = [](int64_t, double) {},
                    .before_update = [&] { tampering.before_update(job); }};
  inputs.step = [&](Job& in, const plan::TrainConfig& train, const StepInputs& step) {
    schedule::ActionList actions = step.actions;
    tampering.actions(actions);
    const StepResult result = run_step(in, train,
                                       {.number = step.number,
                                        .micro_batches = step.micro_batches,
                                        .actions = actions,
                                        .memory = step.memory,
                                        .learning_rate = step.learning_rate,
                                        .before_update = step.before_update,
                                        .stop_signal = step.stop_signal});
    run.losses.push_back(result.loss);
    run.norms.push_back(result.gradient_norm);
    return result;
  };
  const LoopOutcome outcome = run_loop(job, inputs);
  run.losses.push_back(outcome.validation_loss);
  run.num_skipped = outcome.num_skipped;
  run.wire_bytes = outcome.wire_bytes_per_step;
  run.network_bytes = outcome.network_bytes_per_step;
  run.collectives = outcome.collectives_per_step;
  run.cut = job.model->cut();
  if (job.strategy->sharers() == nullptr) {  // or no rank of this host has all of a tensor
    for (const auto& [name, tensor] : job.strategy->state().parameters) {
      run.parameters[name] = tensor.detach().clone();
    }
  }
  tampering.at_end(job);
  return run;
}

/// Of every rank, each on a thread of its own.
inline std::vector<JobRun> run_job(const plan::Plan& plan, const Dataset& dataset,
                                   const Tampering& tampering = {}) {
  std::vector<JobRun> runs(plan.ranks);
  test::run_ranks(plan.ranks, [&](world::World& world) {
    runs[world.rank()] = run_rank(plan, dataset, world.group(), tampering);
  });
  return runs;
}

/// The part of a parameter that a rank of a cut model has; all of it in models that no axis cuts so.
inline at::Tensor part_of(const at::Tensor& all, const std::string& name, const layout::Cut& cut) {
  if (cut.placements.empty()) return all;
  const layout::Placement placement = layout::placement_of(cut.placements, name).or_throw();
  return parallel::tensor::part_of(all, placement, cut.index, cut.degree);
}

/// The names of parameters that are not parts of the whole's.
inline std::set<std::string> apart(const JobRun& found, const JobRun& whole,
                                   double tolerance = kAdamDifference) {
  std::set<std::string> names;
  for (const auto& [name, value] : found.parameters) {
    const at::Tensor& all = whole.parameters.at(name);
    const at::Tensor part = part_of(all, name, found.cut);
    const double most = tolerance * all.abs().max().item<double>();
    if (!((value - part).abs().max().item<double>() <= most)) names.insert(name);
  }
  return names;
}

/// Ranks have the losses, norms and parts of the parameters of one process; together all of them, unless they lie in
/// shards over hosts.
inline void expect_trained_alike(const std::vector<JobRun>& runs, const JobRun& alone,
                                 double difference) {
  std::set<std::string> learned;
  for (const JobRun& run : runs) {
    EXPECT_THAT(apart(run, alone, difference), testing::IsEmpty());
    ASSERT_EQ(run.losses.size(), alone.losses.size());
    ASSERT_EQ(run.norms.size(), alone.norms.size());
    for (size_t i = 0; i < alone.losses.size(); ++i) {
      EXPECT_NEAR(run.losses[i], alone.losses[i], difference * alone.losses[i]) << i;
    }
    for (size_t i = 0; i < alone.norms.size(); ++i) {
      EXPECT_NEAR(run.norms[i], alone.norms[i], difference * alone.norms[i]) << i;
    }
    for (const auto& [name, value] : run.parameters) learned.insert(name);
  }
  if (learned.empty()) return;  // in shards over hosts
  EXPECT_EQ(learned.size(), alone.parameters.size()) << "parameters that no rank has";
}

inline at::Tensor gradient_of(const Job& job, std::string_view name) {
  for (const auto& one : job.strategy->parameters()) {
    if (one.name.ends_with(name)) return one.tensor.mutable_grad();
  }
  return {};
}

/// Of a job whose own updates change nothing: descend() is its update.
inline void update_by_descent(plan::TrainConfig& train) {
  train.schedule = plan::LearningRateSchedule::kConstant;
  train.learning_rate = train.min_learning_rate = 0;
}

/// Plain gradient descent, whose differences grow little from step to step.
inline void descend(Job& job, std::string_view left_out = {}) {
  constexpr double kRate = 1e-3;  // of a sum over some hundred targets
  const at::NoGradGuard no_grad;
  const auto gradients = job.strategy->gradients();
  const FlatState state = job.strategy->state();
  const OwnState own = job.strategy->own_state();
  for (size_t i = 0; i < gradients.size(); ++i) {
    const auto& [name, parameter] = state.parameters[i];
    if (!left_out.empty() && name.ends_with(left_out)) continue;
    const int64_t first = state.layout.offsets[i], last = first + state.layout.sizes[i];
    for (const layout::Range range : own.parameters) {
      const int64_t begin = std::max(range.begin, first) - first;
      const int64_t end = std::min(range.end, last) - first;
      if (begin >= end) continue;
      parameter.view({-1})
          .slice(0, begin, end)
          .sub_(gradients[i].flatten().slice(0, begin, end), kRate);
    }
  }
}

}  // namespace hanji::train
