// A job whose pairs are cut by "axial" trains as the job of one rank, and moves what its plan says.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>

#include "hanji/plan/moves.h"
#include "hanji/plan/shard_plan.h"
#include "hanji/train/count_facts.h"
#include "hanji/train/prepare.h"
#include "hanji/train/test_job_run.h"
#include "hanji/train/test_verified.h"

namespace hanji::train {
namespace {

using plan::TriangleWay;

struct AxialMesh {
  int64_t dp = 1;
  int64_t axial = 1;
  TriangleWay way = TriangleWay::kChannels;
  bool recompute = false;
  plan::Sharding data = plan::Sharding::kReplicas;
  int64_t blocks = 1;  ///< Above 1: stable bits in fp32.
};

std::string describe_mesh(const AxialMesh& mesh) {
  return fmt::format("dp {}, axial {}, {}, recompute {}, {}, {} blocks", mesh.dp, mesh.axial,
                     plan::name_of(mesh.way), mesh.recompute, plan::name_of(mesh.data),
                     mesh.blocks);
}

/// 9 residues and 7 sequences, which few degrees divide; 7 samples, uneven shares and micro-batches.
plan::PlanInputs axial_inputs(const AxialMesh& mesh, const Dataset& dataset) {
  plan::PlanInputs inputs = float64_job(dataset);
  plan::Config& config = inputs.config;
  config.model = {.preset = "evoformer-tiny", .layers = 1, .width = 8, .dropout = 0.25};
  config.data.pairs = plan::Pairs::kContacts;
  config.data.residues = 9;
  config.data.sequences = 7;
  config.data.systems = 60;
  config.train.steps = 3;
  config.train.micro_batch = 2;
  config.compute.recompute = mesh.recompute;
  config.run.ranks = mesh.dp * mesh.axial;
  config.mesh.axial = mesh.axial;
  if (mesh.axial > 1) config.parallel.triangle = mesh.way;
  config.parallel.data = mesh.data;
  if (mesh.data == plan::Sharding::kHybrid) config.mesh.dp = mesh.dp;
  if (mesh.blocks == 1) {
    update_by_descent(config.train);
    return inputs;
  }
  config.train.bits = plan::Bits::kStable;
  config.train.cuts.tokens = mesh.blocks;
  config.compute.dtype = inputs.kernels.precision = plan::Precision::kFloat32;
  return inputs;
}

plan::Plan axial_plan(const AxialMesh& mesh, const Dataset& dataset) {
  plan::PlanInputs inputs = axial_inputs(mesh, dataset);
  inputs.model = count_facts(inputs.config, Workload{dataset});
  return plan::make_plan(inputs).or_throw();
}

class AxialJob : public testing::Test {
 protected:
  /// Every rank has all of them.
  static void expect_parameters_of_one_rank(const JobRun& run, const std::string& where) {
    for (const auto& [name, expected] : whole().parameters) {
      const double most = kSgdDifference * std::max(1e-3, expected.abs().max().item<double>());
      const at::Tensor& found = run.parameters.at(name);
      EXPECT_LE((found - expected).abs().max().item<double>(), most) << where << " " << name;
    }
  }
  static void expect_plan(const plan::Plan& plan, const std::vector<JobRun>& runs,
                          const std::string& where) {
    int64_t wire_bytes = 0;
    for (const JobRun& run : runs) wire_bytes += run.wire_bytes;
    EXPECT_EQ(wire_bytes, plan.predicted.wire_bytes_per_step) << where;
    EXPECT_EQ(runs[0].collectives, plan.predicted.collectives_per_step) << where;
  }
  static const Dataset& dataset() {
    static const Dataset opened = [] {
      plan::Config config;
      config.model.preset = "evoformer-tiny";
      config.data.pairs = plan::Pairs::kContacts;
      config.data.residues = 9;
      config.data.sequences = 7;
      config.data.systems = 60;
      return open_dataset(config).or_throw();
    }();
    return opened;
  }
  static const JobRun& whole() {
    static const JobRun run = run_job(axial_plan({}, dataset()), dataset(),
                                      {.before_update = [](Job& job) { descend(job); }})[0];
    return run;
  }
};

TEST_F(AxialJob, TrainsAsOneRankDoesAndMovesWhatItsPlanSays) {
  for (const AxialMesh mesh :
       {AxialMesh{1, 3, TriangleWay::kGather}, AxialMesh{2, 3, TriangleWay::kChannels, true},
        AxialMesh{1, 3, TriangleWay::kGather, true, plan::Sharding::kZero2},
        AxialMesh{2, 2, TriangleWay::kRing, true, plan::Sharding::kZero3}}) {
    const std::string where = describe_mesh(mesh);
    const plan::Plan plan = axial_plan(mesh, dataset());
    const std::vector<JobRun> runs =
        run_job(plan, dataset(), {.before_update = [](Job& job) { descend(job); }});
    for (const JobRun& run : runs) {
      expect_parameters_of_one_rank(run, where);
      EXPECT_EQ(run.norms, runs[0].norms) << where << ": or ranks would clip differently";
      EXPECT_EQ(run.losses, runs[0].losses) << where;
    }
    for (size_t i = 0; i < whole().losses.size(); ++i) {
      EXPECT_NEAR(runs[0].losses[i], whole().losses[i], kSgdDifference * whole().losses[i])
          << where;
    }
    // Descent gathers the sums of sharded states, which no update does.
    expect_plan(plan, plan::cuts_states(mesh.data) ? run_job(plan, dataset()) : runs, where);
  }
}

TEST_F(AxialJob, StableHasOneStateOnAnyMeshAndMovesWhatItsPlanSays) {
  const auto run = [&](const AxialMesh& mesh) { return axial_plan(mesh, dataset()); };
  AxialMesh mesh{.blocks = 4};
  const JobRun one = run_job(run(mesh), dataset())[0];
  for (const auto& [dp, axial, recompute, data] :
       {std::tuple(1, 4, false, plan::Sharding::kReplicas), {2, 3, true, plan::Sharding::kZero2}}) {
    mesh = {.dp = dp, .axial = axial, .recompute = recompute, .data = data, .blocks = 4};
    const std::string where = describe_mesh(mesh);
    const plan::Plan plan = run(mesh);
    const std::vector<JobRun> runs = run_job(plan, dataset());
    for (const JobRun& found : runs) {
      EXPECT_EQ(found.losses, one.losses) << where;
      EXPECT_EQ(found.norms, one.norms) << where;
      for (const auto& [name, expected] : one.parameters) {
        EXPECT_TRUE(at::equal(found.parameters.at(name), expected)) << where << " " << name;
      }
    }
    expect_plan(plan, runs, where);
  }
}

TEST_F(AxialJob, VerifyProvesThatTheRanksAreOneProcess) {
  const plan::Plan plan = axial_plan({.dp = 2, .axial = 2, .blocks = 3}, dataset());
  ObservedParts parts;
  EXPECT_FALSE(verified(plan, Workload{dataset()}, parts).difference);
}

/// A rank that leaves out what it adds to one gradient of a block.
TEST_F(AxialJob, VerifyNamesTheAxisWhereOneRankLosesAGradient) {
  const plan::Plan plan = axial_plan({.axial = 2, .blocks = 3}, dataset());
  ObservedParts parts;
  parts.assemble = [](const plan::Plan& its, const comm::Group& ranks) {
    Job job = assemble(its, ranks);
    if (!job.is_axial || ranks.rank() == 0) return job;
    for (const auto& one : job.model->named_parameters()) {
      if (!one.key().ends_with("tri_mul_out.linear_g.weight")) continue;
      one.value().register_hook([](const at::Tensor& g) { return g * 0; });
    }
    return job;
  };
  const report::Certificate found = verified(plan, Workload{dataset()}, parts);
  ASSERT_TRUE(found.difference);
  EXPECT_THAT(found.difference->tensor, testing::HasSubstr("tri_mul_out.linear_g.weight"));
  EXPECT_THAT(found.difference->axes, testing::Contains("axial"));
}

/// What a rank keeps of its layers divides by the ranks where channels pass, but for biases.
TEST_F(AxialJob, TheMemoryOfPairsDividesByTheRanks) {
  const auto kept = [&](const AxialMesh& mesh) {
    plan::PlanInputs inputs = axial_inputs(mesh, dataset());
    const plan::ModelFacts facts = count_facts(inputs.config, Workload{dataset()});
    return static_cast<double>(facts.layers[1].kept.of(2));
  };
  const double one = kept({});
  EXPECT_LT(kept({1, 3}), 0.45 * one);
  EXPECT_GT(kept({1, 3, TriangleWay::kGather}), kept({1, 3}));
}

TEST_F(AxialJob, RefusesWhatItCannotCutAllAtOnce) {
  plan::PlanInputs inputs = axial_inputs({1, 8, TriangleWay::kGather}, dataset());
  inputs.config.train.bits = plan::Bits::kStable;
  inputs.config.parallel.data = plan::Sharding::kServer;
  const std::string why = plan::make_plan(inputs).status().message();
  for (const char* words : {"mesh.axial is 8, but a rank has whole sequences and data.sequences is "
                            "7",
                            "computes rows in 7 blocks or more, but train.cuts.tokens is 1",
                            "parallel.triangle = gather sums over the rows of each rank",
                            "but parallel.data = server serves workers"}) {
    EXPECT_THAT(why, testing::HasSubstr(words));
  }
}

TEST_F(AxialJob, DecidesHowTrianglesMoveByRatesAndMemory) {
  plan::PlanInputs inputs = axial_inputs({1, 2, TriangleWay::kAuto}, dataset());
  inputs.model = count_facts(inputs.config, Workload{dataset()});
  plan::Plan draft = plan::make_plan(inputs).or_throw();
  EXPECT_EQ(draft.config.parallel.triangle, TriangleWay::kChannels) << "as it was counted";
  const auto ways = plan::compare_triangles(draft);
  ASSERT_TRUE(ways);
  EXPECT_EQ(plan::cheapest_triangle(draft, *ways, 0), TriangleWay::kChannels) << "no memory";
  inputs.config.parallel.triangle = TriangleWay::kAuto;
  ASSERT_TRUE(decide_moves(inputs, Workload{dataset()}, draft).ok());
  const TriangleWay decided = inputs.config.parallel.triangle;
  EXPECT_EQ(decided, ways->front().way);
  EXPECT_EQ(draft.config.parallel.triangle, decided) << "it is counted anew";
  EXPECT_THAT(plan::describe(draft),
              testing::HasSubstr("triangles of a block by " + std::string(plan::name_of(decided))));
  EXPECT_FALSE(plan::compare_triangles(axial_plan({.axial = 2, .blocks = 2}, dataset())))
      << "stable has channels alone";
}

}  // namespace
}  // namespace hanji::train
