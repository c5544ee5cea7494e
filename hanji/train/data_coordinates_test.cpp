// Ranks that differ along an axis other than dp and fsdp see the same samples and count once.
#include <gmock/gmock.h>

#include <csignal>

#include "hanji/compute/apply.h"
#include "hanji/layers/model.h"
#include "hanji/models/test_gpt.h"
#include "hanji/plan/test_plan.h"
#include "hanji/test/run_ranks.h"
#include "hanji/train/loop.h"
#include "hanji/train/state.h"
#include "hanji/train/test_dataset.h"

namespace hanji::train {
namespace {

using plan::Bits;
using plan::Sharding;
using testing::Each;

constexpr int64_t kStepsOnAMesh = 3;

struct MeshCase {
  const char* name;
  Sharding data;
  plan::MeshConfig mesh;  ///< dp and fsdp alone.
};

std::shared_ptr<layers::Model> whole_model(const plan::Config& config,
                                           const layout::MeshShape& mesh, int rank) {
  const plan::ModelConfig& model = config.model;
  const models::GptOptions options{.layers = model.layers,
                                   .heads = model.heads,
                                   .width = model.width,
                                   .block = model.block,
                                   .vocabulary = model.vocabulary,
                                   .dropout = model.dropout,
                                   .tied = model.tied};
  return std::make_shared<models::WholeOnEachRank>(
      options, layout::Cut{{{"*", {}}}, mesh.coordinate(rank, "tp"), mesh.degree("tp")});
}

/// Each rank of a data coordinate trains the whole model, in one block.
plan::Plan planned_on(const MeshCase& of, const plan::MeshConfig& mesh, Bits bits,
                      const Dataset& dataset) {
  plan::PlanInputs inputs = plan::test_plan::small_gpt(dataset.facts());
  if (mesh.tp > 1) {
    inputs.model = plan::test_plan::made(inputs).model;
    if (bits == Bits::kStable) inputs.config.train.cuts.features = mesh.tp;
  }
  plan::Config& config = inputs.config;
  config.run.ranks = of.mesh.dp * of.mesh.fsdp * plan::ranks_per_data_coordinate(mesh);
  config.parallel.data = of.data;
  config.mesh = mesh;
  config.mesh.dp = of.mesh.dp;
  config.mesh.fsdp = of.mesh.fsdp;
  config.model.dropout = 0.1;
  config.train.steps = kStepsOnAMesh;
  config.train.global_batch = 7;
  config.train.micro_batch = 2;
  config.train.bits = bits;
  config.train.clip = 0;  // ranks of "tp" add up the norm in another order
  config.train.evaluate_batches = 3;
  plan::Plan plan = plan::make_plan(inputs).or_throw();
  plan.config.train.cuts.features = 1;
  return plan;
}

/// What one rank saw.
struct SeenByRank {
  std::vector<layout::Range> samples;  ///< Positions of its batches, step by step.
  std::vector<int64_t> tokens;         ///< Of each step, as all ranks counted them.
  std::vector<double> losses;
  std::string state;
  int64_t steps_done = 0;
  int stop_signal = 0;

  bool operator==(const SeenByRank&) const = default;
};

/// `stopped`: a rank that is told to stop in the second step; -1: none is.
std::vector<SeenByRank> run_on(const plan::Plan& plan, const Dataset& dataset, int stopped = -1) {
  std::vector<SeenByRank> all(plan.ranks);
  test::run_ranks(plan.ranks, [&](world::World& world) {
    compute::apply(plan.kernels, 1);
    SeenByRank& seen = all[world.rank()];
    PrivateMemory memory;
    StopSignal stop = StopSignal::create().or_throw();
    Job job = assemble(plan, world.group(), [&](const plan::Config& config, const auto&) {
      return whole_model(config, plan.mesh, world.rank());
    });
    LoopInputs inputs{.plan = plan,
                      .dataset = dataset,
                      .memory = memory,
                      .stop = stop,
                      .save = [](int64_t, double) {},
                      .before_update = [] {}};
    inputs.step = [&](Job& in, const plan::TrainConfig& train, const StepInputs& step) {
      StepInputs told = step;
      if (step.number == 1 && world.rank() == stopped) told.stop_signal = SIGINT;
      const StepResult result = run_step(in, train, told);
      for (const layers::Batch& batch : step.micro_batches) seen.samples.push_back(batch.positions);
      seen.tokens.push_back(result.num_targets);
      seen.losses.push_back(result.loss);
      return result;
    };
    const LoopOutcome outcome = run_loop(job, inputs);
    seen.losses.push_back(outcome.validation_loss);
    seen.state = hashes_of(job).state;
    seen.steps_done = outcome.steps_done;
    seen.stop_signal = outcome.stop_signal;
  });
  return all;
}

class DataCoordinates : public testing::TestWithParam<MeshCase> {
 protected:
  static const Dataset& dataset() { return bytes_of_text(); }
};

TEST_P(DataCoordinates, RanksOfOneSeeTheSameAndAreCountedOnce) {
  for (const Bits bits : {Bits::kRun, Bits::kStable}) {
    const std::vector<SeenByRank> uncut =
        run_on(planned_on(GetParam(), {}, bits, dataset()), dataset());
    EXPECT_THAT(uncut[0].tokens, Each(7 * 8)) << "of 7 samples of 8 tokens";
    const plan::Plan plan = planned_on(GetParam(), {.tp = 2}, bits, dataset());
    ASSERT_EQ(plan.ranks, 2 * std::ssize(uncut));
    const std::vector<SeenByRank> cut = run_on(plan, dataset());
    for (int rank = 0; rank < plan.ranks; ++rank) {
      EXPECT_EQ(cut[rank], uncut[plan.mesh.data_coordinate(rank)])
          << "rank " << rank << ", " << plan::name_of(bits);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Strategies, DataCoordinates,
                         testing::Values(MeshCase{"ddp", Sharding::kReplicas, {.dp = 3, .fsdp = 1}},
                                         MeshCase{
                                             "server", Sharding::kServer, {.dp = 2, .fsdp = 1}},
                                         MeshCase{"zero1", Sharding::kZero1, {.dp = 1, .fsdp = 2}},
                                         MeshCase{"zero3", Sharding::kZero3, {.dp = 1, .fsdp = 3}},
                                         MeshCase{"hsdp", Sharding::kHybrid, {.dp = 2, .fsdp = 2}}),
                         [](const auto& info) { return info.param.name; });

using OneDataCoordinate = DataCoordinates;

TEST_P(OneDataCoordinate, StopsWithTheOneRankThatWasTold) {
  for (const Bits bits : {Bits::kRun, Bits::kStable}) {
    const std::vector<SeenByRank> all =
        run_on(planned_on(GetParam(), {.tp = 2}, bits, dataset()), dataset(), 1);
    for (const SeenByRank& seen : all) {
      EXPECT_EQ(seen.stop_signal, SIGINT);
      EXPECT_EQ(seen.steps_done, 2);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Strategies, OneDataCoordinate,
                         testing::Values(MeshCase{
                             "ddp", Sharding::kReplicas, {.dp = 2, .fsdp = 1}}),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace hanji::train
