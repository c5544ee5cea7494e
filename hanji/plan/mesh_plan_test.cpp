#include <gmock/gmock.h>

#include "hanji/plan/plan.h"
#include "hanji/plan/rank_memory.h"
#include "hanji/plan/test_plan.h"

namespace hanji::plan {
namespace {

using test_plan::made;
using test_plan::two_cores;
using testing::ElementsAre;
using testing::HasSubstr;

/// Ranks of a model that could be cut by any axis.
PlanInputs on_a_mesh(const MeshConfig& mesh, Sharding data = Sharding::kReplicas) {
  PlanInputs inputs = two_cores();
  inputs.config.mesh = mesh;
  inputs.config.parallel.data = data;
  inputs.cut_axes = layout::kAxisNames;
  return inputs;
}

TEST(MakePlanOnAMesh, SharesBelongToDataCoordinates) {
  PlanInputs inputs = on_a_mesh({.tp = 2});
  inputs.config.run.ranks = 4;
  const Plan plan = made(inputs);
  EXPECT_THAT(plan.mesh.axes(), ElementsAre(layout::Axis{"dp", 2}, layout::Axis{"tp", 2}));
  EXPECT_THAT(plan.shares, ElementsAre(DataShare{{0, 8}, 1}, DataShare{{8, 16}, 1}));
  EXPECT_EQ(share_of(plan, 1), plan.shares[0]);
  EXPECT_EQ(share_of(plan, 2), plan.shares[1]);
  EXPECT_EQ(plan.cpus.size(), 4u);
  EXPECT_EQ(plan.config.mesh.tp, 2);
  EXPECT_THAT(describe(plan), HasSubstr("dp 2, tp 2, 4 ranks"));
  EXPECT_THAT(describe(plan), HasSubstr("per data coordinate 8 8"));
}

TEST(MakePlanOnAMesh, ASplitGivesEachDataCoordinateAShare) {
  PlanInputs inputs = on_a_mesh({.cp = 3});
  inputs.config.train.split = {3, 1};
  const Plan plan = made(inputs);
  EXPECT_EQ(plan.ranks, 6);
  EXPECT_THAT(plan.shares, ElementsAre(DataShare{{0, 12}, 1}, DataShare{{12, 16}, 1}));
}

TEST(MakePlanOnAMesh, TokensAreCountedOncePerDataCoordinate) {
  const auto tokens = [](const Plan& plan) {
    return plan.predicted.tokens_per_second * plan.predicted.step_seconds;
  };
  PlanInputs alone = on_a_mesh({});
  alone.config.run.ranks = 2;
  PlanInputs cut = on_a_mesh({.tp = 2});
  cut.config.run.ranks = 4;
  EXPECT_NEAR(tokens(made(cut)), tokens(made(alone)), 1e-6);
  EXPECT_EQ(made(cut).predicted.wire_bytes_per_step, 2 * made(alone).predicted.wire_bytes_per_step)
      << "each of two groups sums its gradients";
}

TEST(MakePlanOnAMesh, StableGrainsAreOwnedByDataCoordinates) {
  PlanInputs inputs = on_a_mesh({.pp = 2, .fsdp = 3, .tp = 2}, Sharding::kZero2);
  inputs.config.train.bits = Bits::kStable;
  inputs.config.run.ranks = 12;
  const Plan plan = made(inputs);
  EXPECT_THAT(plan.mesh.axes(), ElementsAre(layout::Axis{"pp", 2}, layout::Axis{"dp", 1},
                                            layout::Axis{"fsdp", 3}, layout::Axis{"tp", 2}));
  EXPECT_EQ(stable_grains(plan).owners.size(), 3u);
  EXPECT_EQ(gradient_buffers(plan).size(), 3u);
  EXPECT_EQ(shards_of(plan)->ranks, 3);
  const auto parameters = [&](int rank) { return rank_memory(plan, 1, rank)[0].bytes; };
  EXPECT_GT(parameters(1), 0) << "first of a group of its own";
  EXPECT_EQ(parameters(2), 0);
}

TEST(MakePlanOnAMesh, RanksFillTheCoresByWholeDataCoordinates) {
  PlanInputs inputs = on_a_mesh({.tp = 3});
  inputs.machine.usable_cores = inputs.machine.physical_cores = 8;
  inputs.machine.core_cpus.clear();
  EXPECT_EQ(made(inputs).ranks, 6);
}

TEST(MakePlanOnAMesh, InnerAxesLieWithinAHost) {
  PlanInputs inputs = on_a_mesh({.tp = 2}, Sharding::kHybrid);
  inputs.config.run.ranks = 8;
  inputs.ranks_per_host = {4, 4};
  EXPECT_THAT(made(inputs).mesh.axes(),
              ElementsAre(layout::Axis{"dp", 2}, layout::Axis{"fsdp", 2}, layout::Axis{"tp", 2}));
  inputs.config.mesh.fsdp = 4;
  EXPECT_THAT(
      make_plan(inputs).status().message(),
      HasSubstr("mesh.fsdp is 4, but host 0 has 4 ranks, and the ranks of a group share one "
                "host's memory; set mesh.fsdp = 2"));
}

TEST(MakePlanOnAMesh, AModelThatNothingCutsIsRefusedByTheAxis) {
  PlanInputs inputs = on_a_mesh({.cp = 2});
  inputs.cut_axes = {};
  EXPECT_THAT(make_plan(inputs).status().message(),
              HasSubstr("mesh.cp is 2, but no model is cut by cp yet; remove mesh.cp"));
}

}  // namespace
}  // namespace hanji::plan
