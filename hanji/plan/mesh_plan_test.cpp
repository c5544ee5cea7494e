#include <gmock/gmock.h>

#include <algorithm>

#include "hanji/cost/named_algorithm.h"
#include "hanji/cost/usage.h"
#include "hanji/plan/gathers.h"
#include "hanji/plan/model_family.h"
#include "hanji/plan/moves.h"
#include "hanji/plan/plan.h"
#include "hanji/plan/rank_memory.h"
#include "hanji/plan/test_plan.h"
#include "hanji/plan/verifiable.h"

namespace hanji::plan {
namespace {

using test_plan::made;
using test_plan::two_cores;
using testing::ElementsAre;
using testing::HasSubstr;

/// Ranks that each have the whole model, whatever the axis.
PlanInputs on_a_mesh(const MeshConfig& mesh, Sharding data = Sharding::kReplicas) {
  PlanInputs inputs = two_cores();
  if (mesh.tp > 1) inputs.model = made(inputs).model;
  inputs.config.mesh = mesh;
  inputs.config.parallel.data = data;
  inputs.cut_axes = layout::kAxisNames;
  return inputs;
}

TEST(MakePlanOnAMesh, SharesBelongToDataCoordinates) {
  PlanInputs inputs = on_a_mesh({.axial = 2});
  inputs.config.run.ranks = 4;
  const Plan plan = made(inputs);
  EXPECT_THAT(plan.mesh.axes(), ElementsAre(layout::Axis{"dp", 2}, layout::Axis{"axial", 2}));
  EXPECT_THAT(plan.shares, ElementsAre(DataShare{{0, 8}, 1}, DataShare{{8, 16}, 1}));
  EXPECT_EQ(share_of(plan, 1), plan.shares[0]);
  EXPECT_EQ(share_of(plan, 2), plan.shares[1]);
  EXPECT_EQ(plan.cpus.size(), 4u);
  EXPECT_EQ(plan.config.mesh.axial, 2);
  EXPECT_THAT(describe(plan), HasSubstr("dp 2, axial 2, 4 ranks"));
  EXPECT_THAT(describe(plan), HasSubstr("per data coordinate 8 8"));
}

TEST(MakePlanOnAMesh, AllThatOneProcessDoesNotHaveIsRefusedAtOnce) {
  PlanInputs inputs = on_a_mesh({.axial = 2});
  inputs.config.run.ranks = 2;
  EXPECT_EQ(
      check_verifiable(made(inputs)).message(),
      "mesh.axial = 2 adds terms of several ranks, which one process adds in another order; "
      "set train.bits = stable and train.cuts.tokens = 2 or more\n"
      "or set compute.dtype = float64 and train.epsilon = 1: ranks are then compared with one "
      "process within 1e-12 of each tensor's largest value");
  inputs.config.train.bits = Bits::kFast;
  Plan plan = made(inputs);
  plan.config.compute.device = Device::kCuda;
  const Status status = check_verifiable(plan);
  EXPECT_EQ(status.code(), Code::kUnsupported);
  for (const char* one :
       {"mesh.axial = 2 adds", "\ncompute.device = cuda", "\ntrain.bits = fast"}) {
    EXPECT_THAT(status.message(), HasSubstr(one));
  }
}

TEST(MakePlanOnAMesh, SumsOfAnotherOrderAreComparedWithinABoundInFloat64) {
  PlanInputs inputs = on_a_mesh({.axial = 2});
  inputs.config.run.ranks = 2;
  Plan plan = made(inputs);
  EXPECT_EQ(verified_within(plan), kVerifiedWithin);
  plan.config.compute.dtype = Precision::kFloat64;
  EXPECT_THAT(check_verifiable(plan).message(), HasSubstr("\nor set compute.dtype = float64"))
      << "updates that divide by less than 1";
  plan.config.train.epsilon = kVerifiedEpsilon;
  plan.config.train.steps = 4;
  EXPECT_TRUE(check_verifiable(plan).ok());
  plan.config.train.steps = 1'000'000;
  const std::string why = check_verifiable(plan).message();
  EXPECT_THAT(why, HasSubstr("after each of 1000000 steps, of at most 8.59 GB in all; set "));
  const auto at = why.find("train.steps = ");
  ASSERT_NE(at, std::string::npos) << why;
  plan.config.train.steps = std::stoll(why.substr(at + 14));
  EXPECT_TRUE(check_verifiable(plan).ok());
  ++plan.config.train.steps;
  EXPECT_FALSE(check_verifiable(plan).ok());
  plan.config.train.bits = Bits::kStable;
  EXPECT_TRUE(check_verifiable(plan).ok()) << "which has the order of one process";
  EXPECT_EQ(verified_within(plan), 0);
}

TEST(MakePlanOnAMesh, ASplitGivesEachDataCoordinateAShare) {
  PlanInputs inputs = on_a_mesh({.axial = 3});
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
  PlanInputs four = on_a_mesh({});
  four.config.run.ranks = 4;
  PlanInputs cut = on_a_mesh({.axial = 2});
  cut.config.run.ranks = 4;
  EXPECT_NEAR(tokens(made(cut)), tokens(made(alone)), 1e-6);
  // All_reduces of two numbers of 8 bytes, in two groups of two ranks, tell who was told to stop.
  constexpr int64_t kStops = 2 * 2 * 2 * 8;
  EXPECT_EQ(made(cut).predicted.wire_bytes_per_step,
            made(four).predicted.wire_bytes_per_step + kStops)
      << "all ranks have terms of all gradients";
  EXPECT_EQ(made(cut).predicted.collectives_per_step,
            made(alone).predicted.collectives_per_step + 1);
}

TEST(MakePlanOnAMesh, CallsOfLayersCostWhatTensorsOfARankAloneDo) {
  PlanInputs inputs = on_a_mesh({.tp = 2});
  inputs.config.run.ranks = 2;
  inputs.rates.fitted = cost::assumed_costs(2, 2);
  const double without = made(inputs).predicted.transfer_seconds;
  for (const auto& algorithm :
       cost::algorithm_names(schedule::Routine::kAllReduce, cost::Medium::kMemory)) {
    inputs.rates.fitted->corrections.push_back({.routine = schedule::Routine::kAllReduce,
                                                .algorithm = std::string(algorithm),
                                                .in_heap = false,
                                                .points = {{1, 3}}});
  }
  EXPECT_GT(made(inputs).predicted.transfer_seconds, 2 * without);
}

TEST(MakePlanOnAMesh, StableGrainsAreOwnedByDataCoordinates) {
  PlanInputs inputs = on_a_mesh({.fsdp = 3, .tp = 4}, Sharding::kZero2);
  inputs.config.train.cuts.features = 4;
  inputs.config.train.bits = Bits::kStable;
  inputs.config.run.ranks = 12;
  const Plan plan = made(inputs);
  EXPECT_THAT(plan.mesh.axes(),
              ElementsAre(layout::Axis{"dp", 1}, layout::Axis{"fsdp", 3}, layout::Axis{"tp", 4}));
  EXPECT_EQ(stable_grains(plan).owners.size(), 3u);
  EXPECT_EQ(gradient_buffers(plan).size(), 3u);
  EXPECT_EQ(shards_of(plan)->ranks, 3);
  const auto parameters = [&](int rank) { return rank_memory(plan, 1, rank)[0].bytes; };
  EXPECT_GT(parameters(1), 0) << "first of a group of its own";
  EXPECT_EQ(parameters(4), 0);
}

TEST(MakePlanOnAMesh, RanksFillTheCoresByWholeDataCoordinates) {
  PlanInputs inputs = on_a_mesh({.axial = 3});
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
  EXPECT_FALSE(shards_span_hosts(made(inputs)));
  inputs.config.mesh.fsdp = 4;
  const Plan over_hosts = made(inputs);
  EXPECT_TRUE(shards_span_hosts(over_hosts));
  // Both ranks of tp shard their parts over both hosts.
  EXPECT_EQ(gathered_between_hosts(over_hosts) % 2, 0);
  EXPECT_GT(gathered_between_hosts(over_hosts), 4 * over_hosts.model.num_parameters());
}

/// As counted by an axis that moves nothing: two ranks have 3 and 5 of 8 elements of one parameter.
ModelFacts cut_facts(const Plan& whole) {
  ModelFacts facts = whole.model;
  for (ParameterFacts& one : facts.parameters) {
    const int64_t more = one.elements / 8 * 5;
    one = {more, one.layer, {one.elements - more, more}};
  }
  facts.layers[1].calls = {{schedule::Routine::kAllReduce,
                            schedule::ReduceOp::kSum,
                            DType::kFloat32,
                            {{.fixed = 0, .per_sample = 100}}}};
  facts.layers[1].kept = {.fixed = 0, .per_sample = 5000};
  return facts;
}

TEST(MakePlanOfACutModel, CountsCallsOfLayersInEveryMicroBatchAndPartsOfEachRank) {
  PlanInputs inputs = two_cores();
  inputs.config.run.ranks = 4;
  const Plan whole = made(inputs);
  inputs.config.mesh.tp = 2;
  inputs.config.train.micro_batch = 3;
  EXPECT_THAT(make_plan(inputs).status().message(), HasSubstr("nobody has counted its layers"));
  inputs.model = cut_facts(whole);
  const Plan plan = made(inputs);
  EXPECT_EQ(plan.model.layers[1].kept, (Amount{0, 5000}));
  EXPECT_EQ(plan.model.layers[1].products[0].n, whole.model.layers[1].products[0].n / 2);
  EXPECT_LT(rank_memory(plan, 3, 0)[0].bytes, rank_memory(whole, 3, 0)[0].bytes);
  inputs.model->layers[1].calls.clear();
  const Plan silent = made(inputs);
  // Micro-batches of 3, 3 and 2 of 8 samples; two ranks read what the other has of each sum.
  EXPECT_EQ(plan.predicted.collectives_per_step, silent.predicted.collectives_per_step + 3);
  EXPECT_EQ(plan.predicted.wire_bytes_per_step - silent.predicted.wire_bytes_per_step,
            2 * 2 * 8 * 100 * 4);
  EXPECT_GT(plan.predicted.exposed_transfer_seconds, silent.predicted.exposed_transfer_seconds);
  const auto read = plan_from_json(to_json(plan));
  ASSERT_TRUE(read.ok()) << read.status().to_string();
  EXPECT_EQ(read->model, plan.model);
  EXPECT_THAT(describe(plan), HasSubstr("810 k parameters"));
}

TEST(MakePlanOfACutModel, CountsTreeReductionsByTheirBlocks) {
  PlanInputs inputs = two_cores();
  inputs.config.run.ranks = 2;
  inputs.model = cut_facts(made(inputs));
  inputs.config.mesh.tp = 2;
  inputs.config.train.bits = Bits::kStable;
  inputs.config.train.cuts.features = 4;
  LayerCall& call = inputs.model->layers[1].calls[0];
  call.routine = schedule::Routine::kTreeReduce;
  const auto added = [&](int64_t blocks) {
    call.blocks = blocks;
    const Plan plan = made(inputs);
    EXPECT_EQ(plan_from_json(to_json(plan)).or_throw().model, plan.model);
    PlanInputs without = inputs;
    without.model->layers[1].calls.clear();
    const Plan silent = made(without);
    EXPECT_EQ(plan.predicted.collectives_per_step, silent.predicted.collectives_per_step + 16);
    return plan.predicted.wire_bytes_per_step - silent.predicted.wire_bytes_per_step;
  };
  // 16 grains. Each rank reads what the other has of its half, and writes its half to the other.
  EXPECT_EQ(added(4), 16 * (100 + 100) * 4);
  // Three blocks of rank 0 are two partial sums, for rank 1 to read.
  EXPECT_GT(added(5), 16 * (100 + 100) * 4);
}

TEST(MakePlanOfACutModel, ChecksBlocksAgainstTheVocabularyOfTheData) {
  PlanInputs inputs = two_cores();
  inputs.config.train.bits = Bits::kStable;
  inputs.config.train.cuts.features = 4;
  inputs.data.vocabulary = 64;
  EXPECT_TRUE(make_plan(inputs).ok());
  inputs.data.vocabulary = 63;
  EXPECT_THAT(make_plan(inputs).status().message(),
              HasSubstr("the vocabulary 63; set train.cuts.features = 3 or less"));
}

TEST(MakePlanOfACutModel, CopiesPartsForCheckpointsAndWhatIsWholeOnce) {
  PlanInputs inputs = two_cores();
  inputs.config.run.ranks = 4;
  inputs.model = cut_facts(made(inputs));
  inputs.config.mesh.tp = 2;
  ParameterFacts& whole = inputs.model->parameters.back();
  whole.parts.clear();
  const Plan plan = made(inputs);
  const auto copied = [&](int rank) {
    const auto lines = rank_memory(plan, 1, rank);
    const auto found = std::ranges::find(lines, "checkpoint copy", &MemoryLine::category);
    return found == lines.end() ? 0 : found->bytes;
  };
  EXPECT_EQ(copied(0) - copied(1), 3 * 4 * whole.elements);
  EXPECT_GT(copied(1), 0);
  EXPECT_EQ(copied(2) + copied(3), 0) << "their replicas save";
}

TEST(MakePlanOfACutModel, LiesWithinEachHost) {
  PlanInputs inputs = two_cores();
  inputs.config.run.ranks = 4;
  inputs.model = cut_facts(made(inputs));
  inputs.config.mesh.tp = 2;
  const Plan alone = made(inputs);
  inputs.ranks_per_host = {2, 2};
  const Plan plan = made(inputs);
  EXPECT_EQ(plan.mesh, alone.mesh);
  EXPECT_EQ(plan.predicted.collectives_per_step, alone.predicted.collectives_per_step);
  // Each part of the gradients, of two ranks on two hosts, is sent both ways, as are used parameters.
  int64_t gradients = 0;
  for (int part = 0; part < 2; ++part) {
    const auto sizes = plan.model.part(part).parameter_sizes();
    gradients += gradient_buckets(sizes, plan.config.comm.bucket_bytes).flat.count * 4 +
                 std::ssize(sizes) + 4 * 8;
  }
  EXPECT_EQ(plan.predicted.network_bytes_per_step, 2 * gradients);
  EXPECT_GT(plan.predicted.network_seconds, 0);
}

TEST(MakePlanOfACutModel, SaysWhatLayersSendWhereAGroupLiesOnSeveralHosts) {
  PlanInputs inputs = two_cores();
  inputs.config.run.ranks = 4;
  inputs.model = cut_facts(made(inputs));
  inputs.config.mesh.tp = 2;
  inputs.ranks_per_host = {2, 2};
  EXPECT_THAT(axes_over_hosts(made(inputs)), testing::IsEmpty());
  inputs.ranks_per_host = {3, 1};  // of the groups {0, 1} and {2, 3} the second
  const Plan plan = made(inputs);
  EXPECT_THAT(axes_over_hosts(plan), ElementsAre("tp"));
  EXPECT_GT(plan.predicted.layer_network_bytes_per_step, 0);
  EXPECT_GT(plan.predicted.layer_network_seconds, 0);
  EXPECT_LE(plan.predicted.layer_network_seconds, plan.predicted.network_seconds);
  EXPECT_THAT(describe(plan), HasSubstr("groups of tp lie on several hosts"));
  // With each rank on a host of its own both groups send.
  inputs.ranks_per_host = {1, 1, 1, 1};
  EXPECT_EQ(made(inputs).predicted.layer_network_bytes_per_step,
            2 * plan.predicted.layer_network_bytes_per_step);
}

TEST(WithoutAxis, IsThePlanOfTheSameJobOnTheRanksThatAreLeft) {
  PlanInputs inputs = two_cores();
  inputs.config.run.ranks = 4;
  inputs.model = cut_facts(made(inputs));
  inputs.config.mesh.tp = 2;
  inputs.config.parallel.sequence = true;
  const Plan plan = made(inputs);
  const Plan whole = without_axis(plan, "tp").or_throw();
  EXPECT_EQ(whole.ranks, 2);
  EXPECT_EQ(whole.mesh.degree("tp"), 1);
  EXPECT_THAT(whole.shares, testing::ContainerEq(plan.shares));
  EXPECT_EQ(whole.job_hash, plan.job_hash);
  const Plan together = without_axis(plan, "dp").or_throw();
  EXPECT_EQ(together.ranks, 2);
  EXPECT_EQ(together.mesh.degree("tp"), 2);
  EXPECT_THAT(together.shares, ElementsAre(DataShare{{0, 16}, 2})) << "in two passes";
}

TEST(WithoutAxis, IsAPlanThatRanksRead) {
  PlanInputs cut = two_cores();
  cut.config.run.ranks = 4;
  cut.model = cut_facts(made(cut));
  cut.config.mesh.tp = 2;
  cut.config.train.bits = Bits::kStable;
  cut.config.train.cuts.features = 2;
  cut.config.train.split = {3, 1};
  for (const PlanInputs& inputs : {cut, on_a_mesh({.dp = 2, .fsdp = 2}, Sharding::kHybrid),
                                   on_a_mesh({.dp = 1, .fsdp = 2}, Sharding::kZero3),
                                   on_a_mesh({.dp = 2, .fsdp = 1}, Sharding::kServer)}) {
    const Plan plan = made(inputs);
    for (const layout::Axis& axis : plan.mesh.axes()) {
      const auto read = plan_from_json(to_json(without_axis(plan, axis.name).or_throw()));
      EXPECT_TRUE(read.ok()) << axis.name << ": " << read.status().to_string();
    }
  }
}

/// Of two ranks with rows of 384 elements, 1536 inside an MLP.
PlanInputs cut_baby(int64_t samples, bool sequence) {
  PlanInputs inputs = two_cores();
  inputs.config.model.preset = "baby";
  inputs.config.mesh.tp = 2;
  inputs.config.parallel.sequence = sequence;
  inputs.config.train.global_batch = samples;
  inputs.machine.available_bytes = int64_t{128} << 30;
  inputs.model = family_of("baby").facts(inputs.config);
  return inputs;
}

TEST(MakePlanOfACutModel, ComparesWhatAnMlpCanMoveByRows) {
  const auto compared = [](int64_t samples, bool sequence) {
    return *compare_moves(made(cut_baby(samples, sequence)));
  };
  for (const bool sequence : {false, true}) {
    const ComparedMoves few = compared(4, sequence), many = compared(128, sequence);
    EXPECT_EQ(few.rows, 1024);
    EXPECT_EQ(few.cheaper(), Moves::kActivations);
    EXPECT_EQ(many.cheaper(), Moves::kWeights);
    // Of two ranks each sends half of 4mk elements, or of 6 x 4 x 384^2 and, for a whole stream, 2mk.
    const double row = 4.0 * 384 / 2, weights = 6.0 * 4 * 384 * 384 * 4 / 2;
    EXPECT_DOUBLE_EQ(few.activations.sent_bytes, 4 * 1024 * row);
    EXPECT_DOUBLE_EQ(few.weights.sent_bytes, weights + (sequence ? 0 : 2 * 1024 * row));
  }
}

TEST(MakePlanOfACutModel, CountsOperationsOnTheRowsThatARankHas) {
  PlanInputs inputs = cut_baby(4, /*sequence=*/true);
  inputs.config.parallel.moves = Moves::kWeights;
  const LayerFacts cut = made(inputs).model.layers[1];
  const LayerFacts whole = made(cut_baby(4, /*sequence=*/false)).model.layers[1];
  EXPECT_EQ(whole.rows[0].rows, 256) << "norms";
  EXPECT_EQ(cut.rows[0].rows, 128);
  EXPECT_EQ(cut.products[2].m, 128);
  EXPECT_EQ(cut.products[2].n, 2 * whole.products[2].n) << "all features of the MLP";
  EXPECT_EQ(cut.product_flops(), whole.product_flops());
}

TEST(MakePlanOfACutModel, SaysWhatItsMlpsMoveAndWhatTheOtherWouldTake) {
  PlanInputs inputs = cut_baby(4, false);
  const Plan plan = made(inputs);
  EXPECT_EQ(plan.config.parallel.moves, Moves::kActivations);
  EXPECT_THAT(describe(plan), HasSubstr("tp          each MLP moves activations: "));
  EXPECT_THAT(describe(plan), HasSubstr("for the 1024 tokens of a\n"));
  EXPECT_THAT(describe(plan), HasSubstr("micro-batch; weights take "));
  inputs.config.parallel.moves = Moves::kWeights;
  EXPECT_THAT(describe(made(inputs)), HasSubstr("each MLP moves weights: "));
  inputs.config.parallel.moves = Moves::kAuto;
  inputs.config.train.bits = Bits::kStable;
  inputs.config.train.cuts.features = 2;
  EXPECT_FALSE(compare_moves(made(inputs))) << "blocks leave no choice";
}

TEST(MakePlanOnAMesh, AModelThatNothingCutsIsRefusedByTheAxis) {
  PlanInputs inputs = on_a_mesh({.axial = 2});
  inputs.cut_axes = {};
  EXPECT_THAT(make_plan(inputs).status().message(),
              HasSubstr("mesh.axial is 2, but model.preset = char is not cut by axial; remove "
                        "mesh.axial"));
}

}  // namespace
}  // namespace hanji::plan
