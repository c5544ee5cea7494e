#include "hanji/train/step.h"

#include <ATen/core/grad_mode.h>
#include <gmock/gmock.h>

#include "hanji/compute/apply.h"
#include "hanji/data/batch.h"
#include "hanji/test/run_ranks.h"
#include "hanji/train/state.h"
#include "hanji/train/test_dataset.h"

namespace hanji::train {
namespace {

using schedule::Action;
using schedule::ActionKind;
using schedule::ActionList;
using testing::AllOf;
using testing::HasSubstr;

constexpr int64_t kMicroBatches = 3;  // of a rank

plan::Plan planned_step(const Dataset& dataset,
                        plan::Precision precision = plan::Precision::kFloat32) {
  plan::PlanInputs inputs{.data = dataset.facts()};
  plan::Config& config = inputs.config;
  config.run.ranks = 2;
  config.model = {.layers = 1, .heads = 2, .width = 16, .block = 8};
  config.data.vocabulary = plan::VocabularyKind::kByte;
  config.train.global_batch = 2 * kMicroBatches;
  config.train.micro_batch = 1;
  config.compute.dtype = precision;
  config.compute.slow_dtype = true;
  inputs.machine.usable_cores = inputs.machine.physical_cores = 2;
  inputs.machine.available_bytes = int64_t{8} << 30;
  inputs.kernels.gemm = plan::Gemm::kMkl;
  inputs.kernels.attention = plan::Attention::kMath;
  inputs.kernels.precision = precision;
  return plan::make_plan(inputs).or_throw();
}

/// Loss and state after one step on two ranks by these actions.
std::pair<double, std::string> stepped(const ActionList& actions) {
  const Dataset& dataset = bytes_of_text();
  const plan::Plan plan = planned_step(dataset);
  std::pair<double, std::string> outcome;
  test::run_ranks(plan.ranks, [&](world::World& world) {
    compute::apply(plan.kernels, 1);
    Job job = assemble(plan, world.group());
    std::vector<layers::Batch> batches(kMicroBatches);
    for (int64_t i = 0; i < kMicroBatches; ++i) {
      const int64_t at = plan::share_of(plan, world.rank()).samples.begin + i;
      data::read_validation_batch(*dataset.samples, 2 * kMicroBatches, {at, at + 1}, batches[i]);
    }
    PrivateMemory memory;
    const std::function<void()> nothing = [] {};
    const StepResult result = run_step(job, plan.config.train,
                                       {.micro_batches = batches,
                                        .actions = actions,
                                        .memory = memory,
                                        .learning_rate = 1e-3,
                                        .before_update = nothing});
    const std::string state = hashes_of(job).state;
    if (world.rank() == 0) outcome = {result.loss, state};
  });
  return outcome;
}

TEST(Step, SeveralMicroBatchesUnderWayGiveTheBitsOfOneAfterTheOther) {
  ActionList all_forward_first;
  for (const ActionKind kind : {ActionKind::kForward, ActionKind::kBackward}) {
    for (int64_t i = 0; i < kMicroBatches; ++i) all_forward_first.push_back({kind, 0, i});
  }
  all_forward_first.push_back({.kind = ActionKind::kReduce});
  ASSERT_TRUE(schedule::check(all_forward_first).ok());
  EXPECT_EQ(stepped(all_forward_first), stepped(schedule::train_actions(kMicroBatches)));
}

using Between = std::function<void(Job& job)>;

/// Losses of three steps of two ranks in bf16, between which every rank does something.
std::vector<double> losses_of_bf16(const Between& between) {
  const Dataset& dataset = bytes_of_text();
  const plan::Plan plan = planned_step(dataset, plan::Precision::kBFloat16);
  std::vector<double> losses;
  test::run_ranks(plan.ranks, [&](world::World& world) {
    compute::apply(plan.kernels, 1);
    Job job = assemble(plan, world.group());
    std::vector<layers::Batch> batches(kMicroBatches);
    for (int64_t i = 0; i < kMicroBatches; ++i) {
      data::read_validation_batch(*dataset.samples, 2 * kMicroBatches, {i, i + 1}, batches[i]);
    }
    PrivateMemory memory;
    const std::function<void()> nothing = [] {};
    for (int step = 0; step < 3; ++step) {
      const StepResult result = run_step(job, plan.config.train,
                                         {.micro_batches = batches,
                                          .actions = schedule::train_actions(kMicroBatches),
                                          .memory = memory,
                                          .learning_rate = 1e-2,
                                          .before_update = nothing});
      if (world.rank() == 0) losses.push_back(result.loss);
      EXPECT_GT(job.strategy->rounded_bytes(), 0);
      between(job);
    }
  });
  return losses;
}

void change_weights(Job& job) {
  const at::NoGradGuard no_grad;
  for (const auto& one : job.strategy->parameters()) at::Tensor(one.tensor).mul_(1.25);
}

TEST(Step, TheUpdateRoundsWeightsAsTheForwardWould) {
  const auto losses = losses_of_bf16([](Job&) {});
  EXPECT_EQ(losses, losses_of_bf16([](Job& job) { job.strategy->drop_rounded(); }));
}

TEST(Step, WeightsThatWereWrittenSinceTheUpdateAreRoundedAgain) {
  const auto losses = losses_of_bf16(change_weights);
  EXPECT_NE(losses, losses_of_bf16([](Job&) {}));
  EXPECT_EQ(losses, losses_of_bf16([](Job& job) {
              change_weights(job);
              job.strategy->drop_rounded();
            }));
  EXPECT_EQ(losses, losses_of_bf16([](Job& job) {
              (void)job.strategy->state();
              EXPECT_EQ(job.strategy->rounded_bytes(), 0);
              change_weights(job);
            }));
}

TEST(Step, AnActionOfAPipelineIsRefusedByName) {
  const ActionList sends = {Action{ActionKind::kForward, 0, 0}, Action{ActionKind::kSend, 0, 0}};
  try {
    stepped(sends);
    FAIL() << "a whole model has nothing to send";
  } catch (const std::exception& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("send of stage 0, micro-batch 0"),
                                    HasSubstr("of 1 stages, messages go between neighbours")));
  }
}

}  // namespace
}  // namespace hanji::train
