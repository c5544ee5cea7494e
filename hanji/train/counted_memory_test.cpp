// Bytes that are counted in a run are those of the run, and bytes that are predicted those of the plan.
#include <ATen/ops/zeros.h>
#include <fmt/format.h>
#include <gmock/gmock.h>

#include "hanji/comm/heap.h"
#include "hanji/compute/apply.h"
#include "hanji/layers/model.h"
#include "hanji/test/run_ranks.h"
#include "hanji/train/count_facts.h"
#include "hanji/train/loop.h"

namespace hanji::train {
namespace {

constexpr int64_t kHidden = int64_t{64} << 20;

/// How ranks share a job.
struct Shared {
  plan::Sharding data = plan::Sharding::kReplicas;
  int64_t tp = 1;
  bool sequence = false;
};

plan::Plan plan_of(Shared by, const Dataset& dataset) {
  plan::PlanInputs inputs{.data = dataset.facts()};
  plan::Config& config = inputs.config;
  config.run.ranks = 2;
  config.model.preset = "nano";
  config.data.vocabulary = plan::VocabularyKind::kByte;
  config.train.steps = 3;
  config.train.global_batch = 4;
  config.parallel.data = by.data;
  config.mesh.tp = by.tp;
  config.parallel.sequence = by.sequence;
  inputs.machine.usable_cores = inputs.machine.physical_cores = 2;
  inputs.machine.available_bytes = int64_t{8} << 30;
  inputs.kernels.gemm = plan::Gemm::kMkl;
  inputs.kernels.attention = plan::Attention::kMath;
  if (by.tp > 1) inputs.model = count_facts(config, Workload{dataset});
  return plan::make_plan(inputs).or_throw();
}

/// Of the first rank, whose model holds `hidden` bytes that no plan knows of.
int64_t counted(const plan::Plan& plan, const Dataset& dataset, int64_t hidden) {
  int64_t counted = 0;
  test::run_ranks(plan.ranks, [&](world::World& world) {
    compute::apply(plan.kernels, 1);
    PrivateMemory memory(world.heap());
    StopSignal stop = StopSignal::create().or_throw();
    Job job = assemble(plan, world.group());
    if (hidden > 0) job.model->register_buffer("hidden", at::zeros({hidden}, at::kByte));
    run_loop(job, {.plan = plan,
                   .dataset = dataset,
                   .memory = memory,
                   .stop = stop,
                   .save = [](int64_t, double) {},
                   .before_update = [] {}});
    if (world.rank() == 0) counted = memory.peak_bytes();
  });
  return counted;
}

TEST(CountedMemory, WhatIsHiddenInTheModelMovesTheMeasuredFigureAndNotThePredicted) {
  plan::DataConfig text;
  text.vocabulary = plan::VocabularyKind::kByte;
  const Dataset dataset = open_dataset(text, 32, plan::kAuto).or_throw();
  using enum plan::Sharding;
  for (const Shared by : {Shared{kReplicas}, Shared{kServer}, Shared{kZero1}, Shared{kZero2},
                          Shared{kReplicas, 2}, Shared{kReplicas, 2, true}}) {
    const std::string name =
        fmt::format("{}, tp {}{}", plan::name_of(by.data), by.tp, by.sequence ? ", sequence" : "");
    const plan::Plan plan = plan_of(by, dataset);
    const int64_t plain = counted(plan, dataset, 0);
    const int64_t with_hidden = counted(plan, dataset, kHidden);
    EXPECT_EQ(with_hidden - plain, kHidden) << name;
    // Nothing is saved here, so there is no copy for a checkpoint.
    int64_t predicted = 0;
    for (const plan::MemoryLine& line : plan.memory) {
      if (line.category != "checkpoint copy") predicted += line.bytes;
    }
    EXPECT_NEAR(static_cast<double>(plain), static_cast<double>(predicted), 0.5e6) << name;
    EXPECT_GT(with_hidden - predicted, kHidden / 2) << "or the bar would see nothing";
  }
}

}  // namespace
}  // namespace hanji::train
