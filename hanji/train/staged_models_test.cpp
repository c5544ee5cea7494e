// Models whose layers a pipeline divides train as the whole ones do.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>

#include <algorithm>
#include <functional>
#include <map>
#include <mutex>
#include <string>

#include "hanji/models/gpt.h"
#include "hanji/models/module_model.h"
#include "hanji/parallel/pipeline/pipeline.h"
#include "hanji/parallel/recompute.h"
#include "hanji/schedule/pipeline_schedule.h"
#include "hanji/test/run_ranks.h"

namespace hanji::train {
namespace {

using models::GptOptions;
using parallel::NamedParameter;
using parallel::Pipeline;
using parallel::Stages;
using schedule::Action;
using schedule::PipelineKind;
using schedule::PipelineShape;

/// Float64 sums in another order: some thousand roundings of 1e-16 of what is summed, through steps
/// whose rate lets them grow little.
constexpr double kDifference = 1e-12;
constexpr int kTrainedSteps = 3;
constexpr double kLearningRate = 0.02;

/// A model and its micro-batches.
struct StagedCase {
  std::function<std::shared_ptr<layers::Model>()> make;
  std::function<layers::Batch(int step, layout::Range samples)> batch;
  bool recompute = false;
  bool splits = false;  ///< Backward in two parts, where the schedule has them.
};

GptOptions small_gpt() {
  GptOptions options;
  options.layers = 6;
  options.heads = 2;
  options.width = 16;
  options.block = 6;
  options.vocabulary = 21;
  options.dropout = 0.1;
  options.dtype = base::Precision::kFloat64;
  return options;
}

StagedCase gpt_case(const GptOptions& options) {
  const auto batch = [options](int step, layout::Range samples) {
    const int64_t length = options.block;
    const auto index = at::arange(samples.begin * length, samples.end * length, at::kLong) + step;
    const auto targets = (index * 5 + 3).remainder(options.vocabulary);
    targets[1] = -1;
    return layers::Batch{.inputs = (index * 11).remainder(options.vocabulary).view({-1, length}),
                         .targets = targets.view({-1, length}),
                         .positions = samples,
                         .num_valid = samples.size() * length - 1,
                         .counters = {.seed = 3, .step = step}};
  };
  return {.make = [options] { return models::make_gpt(options); }, .batch = batch, .splits = true};
}

/// Values by formula: ranks are threads, and torch's generator is one for all of them.
StagedCase sequential_case() {
  namespace nn = torch::nn;
  const auto batch = [](int step, layout::Range samples) {
    const auto rows = at::arange(samples.begin * 4, samples.end * 4, at::kDouble) + step;
    return layers::Batch{.inputs = rows.sin().view({-1, 4}),
                         .targets = rows.cos().view({-1, 4}),
                         .positions = samples,
                         .num_valid = samples.size()};
  };
  const auto make = [batch]() -> std::shared_ptr<layers::Model> {
    nn::Sequential net;
    for (int i = 0; i < 4; ++i) {
      net->push_back(nn::Linear(4, 4));
      net->push_back(nn::LayerNorm(nn::LayerNormOptions({4})));
      net->push_back(nn::Tanh());
    }
    net->to(at::kDouble);
    const at::NoGradGuard no_grad;
    for (auto& one : net->parameters()) {
      one.copy_((at::arange(one.numel(), at::kDouble) + 1).sin().view(one.sizes()));
    }
    const auto loss = [](const at::Tensor& output, const at::Tensor& targets) {
      return layers::LossSum{(output - targets).square().sum(), targets.size(0)};
    };
    return std::make_shared<models::ModuleModel>(models::layers_of(net), loss, at::kDouble,
                                                 batch(0, {0, 2}));
  };
  return {make, batch};
}

/// Uneven.
std::vector<layout::Range> micro_batches(int64_t count) {
  std::vector<layout::Range> samples;
  for (int64_t i = 0, begin = 0; i < count; ++i) {
    samples.push_back({begin, begin + 1 + i % 2});
    begin = samples.back().end;
  }
  return samples;
}

std::vector<layers::LayerScope> scopes_of(const StagedCase& one, const layers::Model& model) {
  if (!one.recompute) return {};
  return {parallel::recompute(model.recomputed_layers())};
}

struct StagedValues {
  std::map<std::string, at::Tensor> values;
  std::vector<double> losses;
};

void update(const std::vector<NamedParameter>& parameters, int64_t num_valid) {
  const at::NoGradGuard no_grad;
  for (const NamedParameter& one : parameters) {
    at::Tensor parameter = one.tensor;
    parameter.sub_(parameter.grad() / num_valid, kLearningRate);
    parameter.mutable_grad() = at::Tensor();
  }
}

int64_t num_valid(const StagedCase& one, int step, int64_t count) {
  int64_t sum = 0;
  for (const layout::Range& samples : micro_batches(count)) {
    sum += one.batch(step, samples).num_valid;
  }
  return sum;
}

StagedValues train_whole(const StagedCase& one, int64_t count) {
  const auto model = one.make();
  StagedValues trained;
  for (int step = 0; step < kTrainedSteps; ++step) {
    double loss = 0;
    for (const layout::Range& samples : micro_batches(count)) {
      const at::Tensor sum = model->loss_sum(one.batch(step, samples)).sum;
      loss += sum.item<double>();
      sum.backward();
    }
    trained.losses.push_back(loss);
    update(parallel::learning_parameters(*model), num_valid(one, step, count));
  }
  for (const auto& item : model->named_parameters()) trained.values[item.key()] = item.value();
  return trained;
}

/// As even as they can be, the first ones longer.
Stages stages_of(const layers::Model& model, const schedule::PipelineSchedule& schedule,
                 bool splits) {
  Stages stages;
  stages.splits.assign(schedule.num_stages(), splits);
  const int64_t layers = model.num_layers();
  for (int i = 0; i < schedule.num_stages(); ++i) {
    stages.layers.push_back(
        {layers * i / schedule.num_stages(), layers * (i + 1) / schedule.num_stages()});
  }
  stages.ranks = schedule.rank_of_stage;
  return stages;
}

/// Sums that change when a backward adds to a parameter.
std::vector<double> gradients_of(const std::vector<NamedParameter>& parameters) {
  std::vector<double> sums;
  for (const NamedParameter& one : parameters) {
    const at::Tensor& gradient = one.tensor.grad();
    sums.push_back(gradient.defined() ? gradient.abs().sum().item<double>() : 0);
  }
  return sums;
}

StagedValues train_stages(const StagedCase& one, const schedule::PipelineSchedule& schedule,
                          const comm::Group& group) {
  const auto model = one.make();
  const int64_t count = schedule.shape.num_micro_batches;
  const schedule::ActionList& actions = schedule.ranks[group.rank()];
  Pipeline pipeline(*model, stages_of(*model, schedule, one.splits), group);
  parallel::keep_stages_of(group.rank(), pipeline.stages(), *model);
  const parallel::TiedParameters tied(*model, pipeline.stages(), group);
  const auto scopes = scopes_of(one, *model);
  const auto parameters = parallel::learning_parameters(*model);
  std::vector<int64_t> sizes;
  for (const layout::Range& samples : micro_batches(count)) sizes.push_back(samples.size());
  StagedValues trained;
  for (int step = 0; step < kTrainedSteps; ++step) {
    std::map<int64_t, at::Tensor> losses;
    double loss = 0;
    schedule::ActionList order;
    pipeline.run(actions, sizes,
                 {.forward =
                      [&](const Action& action) {
                        order.push_back(action);
                        const auto samples = micro_batches(count)[action.micro_batch];
                        const layers::Batch batch = one.batch(step, samples);
                        layers::Flow flow = pipeline.forward(action, batch, scopes);
                        if (flow.empty()) return;
                        losses[action.micro_batch] = model->loss(std::move(flow), batch).sum;
                      },
                  .backward =
                      [&](const Action& action, bool /*is_last*/) {
                        order.push_back(action);
                        const auto before = gradients_of(parameters);
                        pipeline.backward(action, losses[action.micro_batch]);
                        EXPECT_TRUE(pipeline.stages().adds_gradients(action) ||
                                    gradients_of(parameters) == before)
                            << to_string(action);
                        if (action.kind == schedule::ActionKind::kBackwardWeight) return;
                        if (action.stage != pipeline.stages().last()) return;
                        loss += losses[action.micro_batch].item<double>();
                      },
                  .reduce = [&](const Action& action) { order.push_back(action); }});
    schedule::ActionList expected = actions;
    std::erase_if(expected, [&](const Action& action) {
      return action.kind == schedule::ActionKind::kSend ||
             action.kind == schedule::ActionKind::kReceive ||
             (action.kind == schedule::ActionKind::kBackwardWeight && !one.splits);
    });
    EXPECT_EQ(order, expected);
    std::vector<at::Tensor> gradients;
    for (const NamedParameter& parameter : parameters) {
      gradients.push_back(parameter.tensor.grad());
    }
    tied.sum(parameters, gradients);
    update(parameters, num_valid(one, step, count));
    if (pipeline.has(pipeline.stages().last())) trained.losses.push_back(loss);
  }
  tied.check_same(tied.parameters());
  for (const NamedParameter& parameter : parameters) {
    trained.values[parameter.name] = parameter.tensor;
  }
  return trained;
}

void expect_values_of_whole(const StagedCase& one, PipelineKind kind, const PipelineShape& shape) {
  const auto schedule = schedule::pipeline_schedule(kind, shape).or_throw();
  const StagedValues whole = train_whole(one, shape.num_micro_batches);
  std::map<std::string, int> copies;
  std::mutex mutex;
  test::run_ranks(shape.num_ranks, [&](world::World& world) {
    const StagedValues found = train_stages(one, schedule, world.group());
    for (const auto& [name, value] : found.values) {
      const at::Tensor& expected = whole.values.at(name);
      EXPECT_LE((value - expected).abs().max().item<double>(),
                kDifference * expected.abs().max().item<double>())
          << name << ", rank " << world.rank() << " of " << name_of(kind);
    }
    for (size_t i = 0; i < found.losses.size(); ++i) {
      EXPECT_NEAR(found.losses[i], whole.losses[i], kDifference * whole.losses[i]) << i;
    }
    const std::lock_guard lock(mutex);
    for (const auto& [name, value] : found.values) ++copies[name];
  });
  EXPECT_EQ(copies.size(), whole.values.size()) << "parameters that learn on no rank";
}

TEST(StagedGpt, TrainsAsTheWholeOneInEverySchedule) {
  const StagedCase gpt = gpt_case(small_gpt());
  expect_values_of_whole(gpt, PipelineKind::kNaive, {2, 1, 1});
  for (const PipelineKind kind :
       {PipelineKind::kNaive, PipelineKind::kGpipe, PipelineKind::k1F1B, PipelineKind::kZbH1}) {
    for (const int ranks : {1, 3}) expect_values_of_whole(gpt, kind, {ranks, 4, 1});
  }
  for (const PipelineKind kind : {PipelineKind::kInterleaved, PipelineKind::kLoopedBfs,
                                  PipelineKind::kZbV, PipelineKind::kDualPipeV}) {
    for (const int ranks : {1, 2, 4}) expect_values_of_whole(gpt, kind, {ranks, 8, 2});
  }
}

TEST(StagedGpt, TrainsAsTheWholeOneWithASplitBackwardOnEveryNumberOfRanks) {
  for (const int ranks : {2, 5, 8}) {
    expect_values_of_whole(gpt_case(small_gpt()), PipelineKind::kZbH1, {ranks, 9, 1});
  }
  for (const bool tied : {true, false}) {
    for (const bool recompute : {true, false}) {
      GptOptions options = small_gpt();
      options.tied = tied;
      StagedCase gpt = gpt_case(options);
      gpt.recompute = recompute;
      expect_values_of_whole(gpt, PipelineKind::kInterleavedZb, {2, 4, 2});
      expect_values_of_whole(gpt, PipelineKind::kZbV, {3, 6, 2});
    }
  }
}

TEST(StagedGpt, TrainsAsTheWholeOneWhereAStageDoesNotSplit) {
  StagedCase gpt = gpt_case(small_gpt());
  gpt.splits = false;
  expect_values_of_whole(gpt, PipelineKind::kZbH1, {3, 4, 1});
}

TEST(StagedGpt, TrainsAsTheWholeOneOnARankForEachLayer) {
  expect_values_of_whole(gpt_case(small_gpt()), PipelineKind::k1F1B, {8, 5, 1});
}

TEST(StagedGpt, TrainsAsTheWholeOneWithAHeadOfItsOwn) {
  GptOptions options = small_gpt();
  options.tied = false;
  expect_values_of_whole(gpt_case(options), PipelineKind::k1F1B, {3, 4, 1});
}

TEST(StagedGpt, TrainsAsTheWholeOneWhereLayersAreRecomputed) {
  StagedCase gpt = gpt_case(small_gpt());
  gpt.recompute = true;
  expect_values_of_whole(gpt, PipelineKind::k1F1B, {3, 4, 1});
}

TEST(StagedModule, TrainsAsTheWholeOneInEverySchedule) {
  for (const PipelineKind kind : {PipelineKind::kGpipe, PipelineKind::k1F1B, PipelineKind::kZbH1}) {
    expect_values_of_whole(sequential_case(), kind, {3, 5, 1});
  }
  // The gradients of its weights are computed at once, and added by backward_weight.
  StagedCase splits = sequential_case();
  splits.splits = true;
  expect_values_of_whole(splits, PipelineKind::kZbH1, {3, 5, 1});
  for (const PipelineKind kind : {PipelineKind::kInterleaved, PipelineKind::kLoopedBfs}) {
    expect_values_of_whole(sequential_case(), kind, {3, 6, 3});
  }
}

}  // namespace
}  // namespace hanji::train
