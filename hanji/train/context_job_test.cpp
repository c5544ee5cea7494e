// A job on "cp" trains as the job of one rank, and moves what its plan says.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>

#include "hanji/train/count_facts.h"
#include "hanji/train/test_job_run.h"

namespace hanji::train {
namespace {

using plan::ContextWay;

struct ContextMesh {
  int64_t dp = 1;
  int64_t cp = 1;
  ContextWay way = ContextWay::kUlysses;
  int64_t kv_heads = plan::kAuto;
  bool recompute = false;
};

std::string name_of_mesh(const ContextMesh& mesh) {
  return fmt::format("dp {}, cp {}, {}, recompute {}", mesh.dp, mesh.cp, plan::name_of(mesh.way),
                     mesh.recompute);
}

/// 11 tokens, which few degrees divide; 7 samples, uneven shares and micro-batches.
plan::PlanInputs context_inputs(const ContextMesh& mesh, const Dataset& dataset) {
  plan::PlanInputs inputs = float64_job(dataset);
  plan::Config& config = inputs.config;
  config.model.heads = 6;
  config.model.kv_heads = mesh.kv_heads;
  config.model.width = 24;
  config.model.layers = 2;
  config.model.block = 11;
  config.model.dropout = mesh.way == ContextWay::kRing ? 0 : 0.1;
  config.train.steps = 3;
  config.train.micro_batch = 2;
  config.compute.recompute = mesh.recompute;
  config.run.ranks = mesh.dp * mesh.cp;
  config.mesh.cp = mesh.cp;
  if (mesh.cp > 1) config.parallel.context = mesh.way;
  update_by_descent(config.train);
  return inputs;
}

plan::Plan context_plan(const ContextMesh& mesh, const Dataset& dataset) {
  plan::PlanInputs inputs = context_inputs(mesh, dataset);
  if (mesh.cp > 1) inputs.model = count_facts(inputs.config, Workload{dataset});
  return plan::make_plan(inputs).or_throw();
}

class ContextJob : public testing::Test {
 protected:
  static const Dataset& dataset() {
    static const Dataset opened = [] {
      plan::DataConfig bytes;
      bytes.vocabulary = plan::VocabularyKind::kByte;
      return open_dataset(bytes, 11, plan::kAuto).or_throw();
    }();
    return opened;
  }
  static JobRun whole_of(ContextMesh mesh) {
    mesh.dp = mesh.cp = 1;
    mesh.recompute = false;
    return run_job(context_plan(mesh, dataset()), dataset(),
                   {.before_update = [](Job& job) { descend(job); }})[0];
  }
  static void expect_the_job_of_one_rank(const ContextMesh& mesh) {
    const JobRun whole = whole_of(mesh);
    const plan::Plan plan = context_plan(mesh, dataset());
    const std::vector<JobRun> runs =
        run_job(plan, dataset(), {.before_update = [](Job& job) { descend(job); }});
    int64_t wire_bytes = 0;
    for (const JobRun& run : runs) {
      EXPECT_THAT(apart(run, whole, kSgdDifference), testing::IsEmpty()) << name_of_mesh(mesh);
      EXPECT_EQ(run.norms, runs[0].norms)
          << name_of_mesh(mesh) << ": or ranks would clip differently";
      EXPECT_EQ(run.losses, runs[0].losses) << name_of_mesh(mesh);
      wire_bytes += run.wire_bytes;
    }
    for (size_t i = 0; i < whole.losses.size(); ++i) {
      EXPECT_NEAR(runs[0].losses[i], whole.losses[i], kSgdDifference * whole.losses[i])
          << name_of_mesh(mesh);
    }
    for (size_t i = 0; i < whole.norms.size(); ++i) {
      EXPECT_NEAR(runs[0].norms[i], whole.norms[i], kSgdDifference * whole.norms[i])
          << name_of_mesh(mesh);
    }
    EXPECT_EQ(wire_bytes, plan.predicted.wire_bytes_per_step) << name_of_mesh(mesh);
    EXPECT_EQ(runs[0].collectives, plan.predicted.collectives_per_step) << name_of_mesh(mesh);
  }
};

TEST_F(ContextJob, TrainsAsOneRankDoesUnderUlyssesAndMovesWhatItsPlanSays) {
  for (const ContextMesh mesh :
       {ContextMesh{1, 2}, ContextMesh{2, 2}, ContextMesh{1, 4, ContextWay::kUlysses, 2},
        ContextMesh{2, 3, ContextWay::kUlysses, plan::kAuto, true}}) {
    expect_the_job_of_one_rank(mesh);
  }
}

TEST_F(ContextJob, TrainsAsOneRankDoesInARingAndMovesWhatItsPlanSays) {
  for (const ContextMesh mesh :
       {ContextMesh{1, 2, ContextWay::kRing}, ContextMesh{2, 2, ContextWay::kRing, 2},
        ContextMesh{1, 5, ContextWay::kRing},
        ContextMesh{2, 3, ContextWay::kRing, plan::kAuto, true}}) {
    expect_the_job_of_one_rank(mesh);
  }
}

/// What a rank keeps of its layers divides by the ranks: 4, 4 and 3 of 11 tokens, and 2 of 6 heads.
TEST_F(ContextJob, KeepsItsPartOfTheActivations) {
  const auto kept = [&](const ContextMesh& mesh) {
    const plan::ModelFacts facts =
        count_facts(context_inputs(mesh, dataset()).config, Workload{dataset()});
    return static_cast<double>(facts.layers[1].kept.of(2));
  };
  for (const ContextWay way : {ContextWay::kUlysses, ContextWay::kRing}) {
    const double whole = kept({1, 1, way});
    EXPECT_LT(kept({1, 3, way}), 0.5 * whole) << plan::name_of(way);
    EXPECT_LT(kept({1, 5, way}), 0.35 * whole) << plan::name_of(way);
  }
}

/// Losses that each rank has divided by its own tokens, of which there are 4, 4 and 3.
TEST_F(ContextJob, DiffersWhereLossesAreAveragedOverRanksOfUnequalLength) {
  const ContextMesh mesh{1, 3};
  const JobRun whole = whole_of(mesh);
  const auto averaged = [](Job& job) {
    const at::NoGradGuard no_grad;
    const double own = layout::context_extents(11, 3, ContextWay::kUlysses)[job.context->rank()];
    for (const auto& one : job.strategy->parameters()) {
      one.tensor.register_hook(
          [own](const at::Tensor& gradient) { return gradient * (11 / 3.0 / own); });
    }
  };
  const std::vector<JobRun> runs =
      run_job(context_plan(mesh, dataset()), dataset(),
              {.at_start = averaged, .before_update = [](Job& job) { descend(job); }});
  EXPECT_FALSE(apart(runs[0], whole, kSgdDifference).empty());
}

TEST_F(ContextJob, RefusesWhatItCannotCutAllAtOnce) {
  plan::PlanInputs inputs = context_inputs({1, 8, ContextWay::kUlysses}, dataset());
  inputs.config.train.bits = plan::Bits::kStable;
  inputs.config.parallel.data = plan::Sharding::kServer;
  inputs.config.mesh.tp = 2;
  inputs.config.run.ranks = 16;
  const std::string why = plan::make_plan(inputs).status().message();
  for (const char* words :
       {"mesh.cp is 8, but a rank has whole heads and model.heads is 6",
        "mesh.cp = 8 adds gradients of tokens by rank, but train.bits is stable",
        "mesh.cp = 8 with mesh.tp = 2 gives every rank as many tokens, but model.block is 11; set "
        "model.block = 16",
        "mesh.cp = 8 with mesh.tp = 2 leaves 3 of 6 heads for the ranks of cp",
        "mesh.cp = 8 adds up terms of a gradient on several ranks, but parallel.data = server"}) {
    EXPECT_THAT(why, testing::HasSubstr(words));
  }
}

}  // namespace
}  // namespace hanji::train
