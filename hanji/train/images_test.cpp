// A model with buffers, on images, through the same job, loop and step as a GPT.
#include <gmock/gmock.h>

#include "hanji/comm/heap.h"
#include "hanji/compute/apply.h"
#include "hanji/layers/model.h"
#include "hanji/plan/load_config.h"
#include "hanji/report/certificate.h"
#include "hanji/test/run_ranks.h"
#include "hanji/train/count_facts.h"
#include "hanji/train/loop.h"
#include "hanji/train/observe_rank.h"
#include "hanji/train/one_process.h"
#include "hanji/train/state.h"

namespace hanji::train {
namespace {

plan::Config small_images(int ranks, plan::Bits bits, bool recompute = false) {
  const std::vector<plan::Override> preset = {{"model.preset=resnet-tiny"}};
  plan::Config config = plan::parse_config("", "run.toml", preset).config;
  config.run.ranks = ranks;
  config.model.width = 4;
  config.data.image_size = 12;
  config.data.image_count = 500;
  config.train.steps = 3;
  config.train.bits = bits;
  config.train.evaluate_batches = 1;
  config.compute.recompute = recompute;
  config.compute.threads = 1;
  config.comm.bucket_bytes = 4096;
  return config;
}

plan::Plan planned_images(const plan::Config& config, const Dataset& dataset) {
  plan::PlanInputs inputs{.config = config, .data = dataset.facts()};
  inputs.machine.physical_cores = inputs.machine.usable_cores = 4;
  inputs.machine.memory_bytes = inputs.machine.available_bytes = int64_t{8} << 30;
  inputs.kernels.gemm = plan::Gemm::kMkl;
  inputs.kernels.attention = plan::Attention::kMath;
  inputs.model = count_facts(config, Workload{dataset});
  return plan::make_plan(inputs).or_throw();
}

report::ObservedRun images_by_ranks(const plan::Plan& plan, const Dataset& dataset) {
  compute::apply(plan.kernels, 1);
  report::ObservedRun first;
  test::run_ranks(plan.ranks, [&](world::World& world) {
    auto seen = observe_rank(plan, dataset, world.group());
    if (world.rank() == 0) first = std::move(seen);
  });
  return first;
}

TEST(ImageJob, StableStateWithItsBuffersIsThatOfOneProcessForAnyRanksAndStrategy) {
  const plan::Config one = small_images(1, plan::Bits::kStable);
  const Dataset dataset = open_dataset(one).or_throw();
  const report::ObservedRun expected = observe_one_process(planned_images(one, dataset), dataset);
  for (const int ranks : {1, 2, 3, 4}) {
    for (const auto data :
         {plan::Sharding::kReplicas, plan::Sharding::kServer, plan::Sharding::kZero2}) {
      plan::Config config = small_images(ranks, plan::Bits::kStable, ranks == 3);
      config.parallel.data = data;
      const report::ObservedRun found = images_by_ranks(planned_images(config, dataset), dataset);
      EXPECT_EQ(found.state_sha256, expected.state_sha256) << ranks << " " << name_of(data);
      EXPECT_FALSE(report::first_difference(expected, std::vector{found}).or_throw());
    }
  }
}

TEST(ImageJob, TheBitsOfARunAreThoseOfOneProcessWithTheSameMicroBatches) {
  const plan::Config config = small_images(2, plan::Bits::kRun, true);
  const Dataset dataset = open_dataset(config).or_throw();
  const plan::Plan plan = planned_images(config, dataset);
  EXPECT_EQ(images_by_ranks(plan, dataset).state_sha256,
            observe_one_process(plan, dataset).state_sha256);
}

TEST(ImageJob, BuffersMoveOncePerStepAndBelongToStateAndHash) {
  const plan::Config config = small_images(1, plan::Bits::kStable, true);
  const Dataset dataset = open_dataset(config).or_throw();
  const plan::Plan plan = planned_images(config, dataset);
  compute::apply(plan.kernels, 1);
  test::run_ranks(1, [&](world::World& world) {
    Job job = assemble(plan, world.group());
    EXPECT_EQ(model_of(view_of(job)).size(),
              job.model->parameters().size() + job.model->buffers().size());
    const std::string hash = hashes_of(job).state;
    job.model->buffers()[0].add_(1);
    EXPECT_NE(hashes_of(job).state, hash);
    job.model->buffers()[0].sub_(1);
    int updates = 0;
    PrivateMemory memory;
    StopSignal stop = StopSignal::create().or_throw();
    const at::Tensor mean = job.model->buffers()[0];
    at::Tensor seen = mean.clone();
    const LoopOutcome outcome = run_loop(job, {.plan = plan,
                                               .dataset = dataset,
                                               .memory = memory,
                                               .stop = stop,
                                               .save = [](int64_t, double) {},
                                               .before_update =
                                                   [&] {
                                                     updates += mean.equal(seen) ? 0 : 1;
                                                     seen = mean.clone();
                                                   }});
    EXPECT_EQ(updates, config.train.steps - 1) << "after each step, and never within one";
    EXPECT_GE(outcome.validation_metric, 0);
    EXPECT_LE(outcome.validation_metric, 1);
  });
}

TEST(CountFacts, PredictTheBytesThatAPassHolds) {
  for (const bool recompute : {false, true}) {
    plan::Config config = small_images(1, plan::Bits::kRun, recompute);
    config.model.width = 16;
    config.data.image_size = 32;
    const Dataset dataset = open_dataset(config).or_throw();
    const plan::Plan plan = planned_images(config, dataset);
    EXPECT_EQ(plan.model.layers.size(), 8U);
    EXPECT_EQ(plan.model.parameters.back().layer, 7);
    compute::apply(plan.kernels, 1);
    test::run_ranks(1, [&](world::World& world) {
      PrivateMemory memory;
      StopSignal stop = StopSignal::create().or_throw();
      Job job = assemble(plan, world.group());
      run_loop(job, {.plan = plan,
                     .dataset = dataset,
                     .memory = memory,
                     .stop = stop,
                     .save = [](int64_t, double) {},
                     .before_update = [] {}});
      const auto kept = static_cast<double>(memory.largest_pass().activations);
      const auto peak = kept + static_cast<double>(memory.largest_pass().workspace);
      const int64_t samples = config.train.global_batch;
      const auto told = static_cast<double>(activation_bytes(plan.model, samples));
      EXPECT_NEAR(told, kept, 0.03 * kept) << recompute;
      EXPECT_NEAR(told + static_cast<double>(workspace_bytes(plan.model, samples)), peak,
                  0.03 * peak)
          << recompute;
    });
  }
}

/// The stem has no gradient of its input, each other product has three.
TEST(CountFacts, FindEveryProduct) {
  plan::Config config = small_images(1, plan::Bits::kRun);
  const Dataset dataset = open_dataset(config).or_throw();
  const plan::ModelFacts facts = count_facts(config, Workload{dataset});
  ASSERT_EQ(facts.layers[0].products.size(), 1U);
  const plan::Product& stem = facts.layers[0].products[0];
  EXPECT_EQ(stem.m, 12 * 12);
  EXPECT_EQ(stem.n, 4);
  EXPECT_EQ(stem.k, 27);
  EXPECT_EQ(stem.count, 2);
  EXPECT_EQ(facts.layers[1].products[0].count, 2 * 3) << "two convolutions of one shape";
  EXPECT_EQ(facts.targets_per_sample, 1);
  EXPECT_EQ(facts.sample_bytes, 3 * 12 * 12 * 4 + 8);
}

}  // namespace
}  // namespace hanji::train
