// A job on "cp" trains as the job of one rank, and moves what its plan says.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>

#include <algorithm>

#include "hanji/data/text.h"
#include "hanji/plan/test_plan.h"
#include "hanji/train/count_facts.h"
#include "hanji/train/test_dataset.h"
#include "hanji/train/test_job_run.h"
#include "hanji/train/test_verified.h"

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

/// Of 8 tokens in 4 blocks, of which 3 ranks have 4, 2 and 2.
plan::Plan stable_plan(const Dataset& dataset) {
  plan::PlanInputs inputs = plan::test_plan::small_gpt(dataset.facts());
  plan::Config& config = inputs.config;
  config.run.ranks = config.mesh.cp = 3;
  config.model.heads = 4;
  config.model.block = 8;
  config.model.dropout = 0.1;
  config.train.bits = plan::Bits::kStable;
  config.train.cuts.tokens = 4;
  config.train.steps = 2;
  config.train.global_batch = 4;
  config.train.warmup_steps = 0;
  config.train.evaluate_batches = 1;
  inputs.model = count_facts(config, Workload{dataset});
  return plan::make_plan(inputs).or_throw();
}

/// Gradients are those of a loss that each rank of cp has divided by its own tokens.
void average_by_own_tokens(Job& job) {
  if (!job.context) return;
  const int64_t last = job.model->num_layers() - 1;
  const double own = job.context->rank() == 0 ? 4 : 2, mean = 8 / 3.0;
  job.scopes.push_back([=](int64_t layer, layers::Flow flow, const layers::RunLayer& run) {
    flow = run(std::move(flow));
    if (layer != last || !flow[0].requires_grad()) return flow;
    flow[0].register_hook([=](const at::Tensor& gradient) { return gradient * (mean / own); });
    return flow;
  });
}

report::Certificate certificate_of(const std::function<void(Job&)>& at_start) {
  const Dataset& dataset = bytes_of_text();
  ObservedParts parts;
  parts.assemble = [&](const plan::Plan& plan, const comm::Group& group) {
    Job job = assemble(plan, group);
    at_start(job);
    return job;
  };
  return verified(stable_plan(dataset), {dataset}, parts);
}

TEST(ContextVerified, RanksAreOneProcessInStable) {
  const report::Certificate right = certificate_of([](Job&) {});
  EXPECT_TRUE(right.equal()) << report::describe(right);
}

TEST(ContextVerified, LossesAveragedOverRanksOfUnequalLengthAreNamedAsTheDocsSay) {
  const report::Certificate wrong = certificate_of(average_by_own_tokens);
  ASSERT_FALSE(wrong.equal());
  const report::FirstDifference& found = *wrong.difference;
  const std::string words =
      fmt::format("`hanji verify` names step {}, {} `{}` and axis {}", found.step,
                  name_of(found.quantity), found.tensor, fmt::join(found.axes, ", "));
  std::string text(data::embedded_text());  // has the docs
  std::ranges::replace(text, '\n', ' ');
  EXPECT_NE(text.find(words), std::string::npos) << words << report::describe(wrong);
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
        "mesh.cp = 8 with train.bits = stable computes tokens in 8 blocks or more, but "
        "train.cuts.tokens is 1",
        "mesh.cp = 8 with mesh.tp = 2 gives every rank as many tokens, but model.block is 11; set "
        "model.block = 16",
        "mesh.cp = 8 with mesh.tp = 2 leaves 3 of 6 heads for the ranks of cp",
        "mesh.cp = 8 adds up terms of a gradient on several ranks, but parallel.data = server"}) {
    EXPECT_THAT(why, testing::HasSubstr(words));
  }
}

}  // namespace
}  // namespace hanji::train
