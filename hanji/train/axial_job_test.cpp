// A job whose pairs are cut by "axial" trains as the job of one rank, and moves what its plan says.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>

#include "hanji/train/count_facts.h"
#include "hanji/train/test_job_run.h"

namespace hanji::train {
namespace {

using plan::TriangleWay;

struct AxialMesh {
  int64_t dp = 1;
  int64_t axial = 1;
  TriangleWay way = TriangleWay::kChannels;
  bool recompute = false;
};

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
  config.parallel.triangle = mesh.way;
  update_by_descent(config.train);
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
       {AxialMesh{1, 2}, AxialMesh{2, 2, TriangleWay::kRing}, AxialMesh{1, 3, TriangleWay::kGather},
        AxialMesh{2, 3, TriangleWay::kChannels, true}}) {
    const std::string where =
        fmt::format("dp {}, axial {}, {}", mesh.dp, mesh.axial, plan::name_of(mesh.way));
    const plan::Plan plan = axial_plan(mesh, dataset());
    const std::vector<JobRun> runs =
        run_job(plan, dataset(), {.before_update = [](Job& job) { descend(job); }});
    int64_t wire_bytes = 0;
    for (const JobRun& run : runs) {
      expect_parameters_of_one_rank(run, where);
      EXPECT_EQ(run.norms, runs[0].norms) << where << ": or ranks would clip differently";
      EXPECT_EQ(run.losses, runs[0].losses) << where;
      wire_bytes += run.wire_bytes;
    }
    for (size_t i = 0; i < whole().losses.size(); ++i) {
      EXPECT_NEAR(runs[0].losses[i], whole().losses[i], kSgdDifference * whole().losses[i])
          << where;
    }
    EXPECT_EQ(wire_bytes, plan.predicted.wire_bytes_per_step) << where;
    EXPECT_EQ(runs[0].collectives, plan.predicted.collectives_per_step) << where;
  }
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
  plan::PlanInputs inputs = axial_inputs({1, 8}, dataset());
  inputs.config.train.bits = plan::Bits::kStable;
  inputs.config.parallel.data = plan::Sharding::kZero1;
  const std::string why = plan::make_plan(inputs).status().message();
  for (const char* words : {"mesh.axial is 8, but a rank has whole sequences and data.sequences is "
                            "7",
                            "mesh.axial = 8 adds gradients of rows by rank, but train.bits is "
                            "stable",
                            "has all parameters on every rank, but parallel.data is zero1"}) {
    EXPECT_THAT(why, testing::HasSubstr(words));
  }
}

}  // namespace
}  // namespace hanji::train
