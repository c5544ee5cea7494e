// A job whose layers ranks share out trains and saves as the job of one rank.
#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <string>

#include "hanji/checkpoint/folder.h"
#include "hanji/checkpoint/hash.h"
#include "hanji/checkpoint/load.h"
#include "hanji/checkpoint/save.h"
#include "hanji/comm/barrier.h"
#include "hanji/compute/apply.h"
#include "hanji/layers/model.h"
#include "hanji/plan/test_plan.h"
#include "hanji/test/run_ranks.h"
#include "hanji/test/temporary_folder.h"
#include "hanji/train/count_facts.h"
#include "hanji/train/loop.h"
#include "hanji/train/state.h"

namespace hanji::train {
namespace {

using plan::PipelineKind;
using testing::Each;
using testing::HasSubstr;

constexpr int64_t kStagedSteps = 4;
/// Float64 sums in another order, through steps whose update divides by roots of squares.
constexpr double kStagedDifference = 1e-9;

struct StagedMesh {
  int64_t pp = 1;
  int64_t dp = 1;
  PipelineKind schedule = PipelineKind::k1F1B;
  int64_t virtual_stages = 1;
  bool recompute = false;
  bool tied = true;
};

/// Of 7 samples, so that data coordinates and micro-batches differ.
plan::Plan staged_plan(const StagedMesh& mesh, const Dataset& dataset) {
  plan::PlanInputs inputs = plan::test_plan::two_cores();
  inputs.data = dataset.facts();
  inputs.kernels = {plan::Gemm::kMkl, plan::Attention::kMath, plan::Precision::kFloat64};
  plan::Config& config = inputs.config;
  config.compute.dtype = plan::Precision::kFloat64;
  config.compute.recompute = mesh.recompute;
  config.model.layers = 4;
  config.model.heads = 2;
  config.model.width = 16;
  config.model.block = 8;
  config.model.dropout = 0.1;
  config.model.tied = mesh.tied;
  config.train.steps = kStagedSteps;
  config.train.global_batch = 7;
  config.train.warmup_steps = 0;
  config.train.clip = 0.5;
  config.train.evaluate_batches = 1;
  config.run.ranks = mesh.pp * mesh.dp;
  config.mesh.pp = mesh.pp;
  if (mesh.pp > 1) {
    config.pipeline.schedule = mesh.schedule;
    config.pipeline.virtual_stages = mesh.virtual_stages;
    inputs.model = count_facts(config, Workload{dataset});
  }
  return plan::make_plan(inputs).or_throw();
}

/// What one rank ends with.
struct StagedRun {
  std::map<std::string, at::Tensor> parameters;
  std::vector<double> losses, norms;
  std::string hash;
  int64_t num_skipped = 0;
  int64_t wire_bytes = 0, collectives = 0;
};

class StagedJob : public testing::Test {
 protected:
  using Tamper = std::function<void(Job&)>;

  static const Dataset& dataset() {
    static const Dataset opened = open_dataset({}, 8, plan::kAuto).or_throw();
    return opened;
  }

  /// Saves to `folder` unless it is empty.
  static std::vector<StagedRun> run(
      const plan::Plan& plan, const std::filesystem::path& folder = {},
      const Tamper& at_start = [](Job&) {}) {
    std::vector<StagedRun> all(plan.ranks);
    test::run_ranks(plan.ranks, [&](world::World& world) {
      compute::apply(plan.kernels, 1);
      StagedRun& run = all[world.rank()];
      PrivateMemory memory;
      StopSignal stop = StopSignal::create().or_throw();
      Job job = assemble(plan, world.group());
      at_start(job);
      LoopInputs inputs{.plan = plan,
                        .dataset = dataset(),
                        .memory = memory,
                        .stop = stop,
                        .save = [](int64_t, double) {},
                        .before_update = [] {}};
      inputs.step = [&](Job& in, const plan::TrainConfig& train, const StepInputs& step) {
        const StepResult result = run_step(in, train, step);
        run.losses.push_back(result.loss);
        run.norms.push_back(result.gradient_norm);
        return result;
      };
      const LoopOutcome outcome = run_loop(job, inputs);
      run.losses.push_back(outcome.validation_loss);
      run.num_skipped = outcome.num_skipped;
      run.wire_bytes = outcome.wire_bytes_per_step;
      run.collectives = outcome.collectives_per_step;
      for (const auto& [name, tensor] : job.strategy->state().parameters) {
        run.parameters[name] = tensor.detach().clone();
      }
      check_parameters(job);
      run.hash = hashes_of(job).state;
      comm::barrier(world.group(), {.label = "hashed"});
      if (!folder.empty()) save(job, world.group(), folder);
    });
    return all;
  }

  static void save(const Job& job, const comm::Group& group, const std::filesystem::path& folder) {
    checkpoint::SaveOptions options{.folder = folder};
    const OwnState own = own_state(job);
    options.writer.num_parts = own.num_parts;
    if (group.rank() == 0) {
      base::throw_if_error(checkpoint::begin_checkpoint(options, kStagedSteps, 0));
    }
    comm::barrier(group, {.label = "begun"});
    if (!own.part) return;
    options.writer.part = *own.part;
    base::throw_if_error(
        checkpoint::save_checkpoint(options, state_to_save(job), {.step = kStagedSteps}));
  }

  static const StagedRun& whole(bool tied = true) {
    static std::map<bool, StagedRun> runs;
    if (!runs.contains(tied)) {
      runs[tied] = run(staged_plan({.tied = tied}, dataset()))[0];
    }
    return runs.at(tied);
  }

  static void expect_the_run_of_one_rank(const StagedMesh& mesh) {
    const StagedRun& expected = whole(mesh.tied);
    const plan::Plan plan = staged_plan(mesh, dataset());
    const std::vector<StagedRun> runs = run(plan);
    std::map<std::string, int> copies;
    int64_t wire_bytes = 0;
    for (const StagedRun& one : runs) {
      wire_bytes += one.wire_bytes;
      EXPECT_EQ(one.losses, runs[0].losses);
      EXPECT_EQ(one.norms, runs[0].norms) << "or ranks would clip differently";
      EXPECT_EQ(one.hash, runs[0].hash);
      for (const auto& [name, value] : one.parameters) {
        ++copies[name];
        const at::Tensor& of_whole = expected.parameters.at(name);
        EXPECT_LE((value - of_whole).abs().max().item<double>(),
                  kStagedDifference * of_whole.abs().max().item<double>())
            << name << ", pp " << mesh.pp << ", dp " << mesh.dp << ", " << name_of(mesh.schedule);
      }
    }
    EXPECT_EQ(copies.size(), expected.parameters.size());
    for (size_t i = 0; i < expected.losses.size(); ++i) {
      EXPECT_NEAR(runs[0].losses[i], expected.losses[i], kStagedDifference * expected.losses[i]);
    }
    for (size_t i = 0; i < expected.norms.size(); ++i) {
      EXPECT_NEAR(runs[0].norms[i], expected.norms[i], kStagedDifference * expected.norms[i]);
    }
    EXPECT_EQ(wire_bytes, plan.predicted.wire_bytes_per_step) << name_of(mesh.schedule);
    EXPECT_EQ(runs[0].collectives, plan.predicted.collectives_per_step);
  }
};

TEST_F(StagedJob, TrainsAsOneRankDoes) {
  expect_the_run_of_one_rank({.pp = 2});
  expect_the_run_of_one_rank({.pp = 3, .schedule = PipelineKind::kGpipe});
  expect_the_run_of_one_rank({.pp = 6, .schedule = PipelineKind::kZbH1});
  expect_the_run_of_one_rank({.pp = 2, .dp = 2});
  expect_the_run_of_one_rank({.pp = 2, .tied = false});
  expect_the_run_of_one_rank({.pp = 2, .recompute = true});
}

TEST_F(StagedJob, TrainsAsOneRankDoesWithSeveralStagesPerRank) {
  expect_the_run_of_one_rank(
      {.pp = 2, .dp = 2, .schedule = PipelineKind::kInterleaved, .virtual_stages = 2});
  expect_the_run_of_one_rank({.pp = 2, .schedule = PipelineKind::kLoopedBfs, .virtual_stages = 3});
  expect_the_run_of_one_rank({.pp = 3, .schedule = PipelineKind::kZbV});
}

TEST_F(StagedJob, SavesAndRestoresTheStateOfTheWholeModel) {
  const std::vector<StagedMesh> meshes = {
      {.pp = 1}, {.pp = 2, .dp = 2}, {.pp = 3}, {.pp = 2, .schedule = PipelineKind::kZbV}};
  for (const StagedMesh& from : meshes) {
    const test::TemporaryFolder folder;
    const std::string hash = run(staged_plan(from, dataset()), folder.path())[0].hash;
    const auto path = folder.path() / checkpoint::folder_name(kStagedSteps);
    const auto saved = checkpoint::load_checkpoint(path).or_throw();
    EXPECT_EQ(checkpoint::state_hash(saved.model, saved.optimizer), hash) << "pp " << from.pp;
    for (const StagedMesh& to : meshes) {
      const plan::Plan plan = staged_plan(to, dataset());
      std::vector<std::string> hashes(plan.ranks);
      test::run_ranks(plan.ranks, [&](world::World& world) {
        compute::apply(plan.kernels, 1);
        Job job = assemble(plan, world.group());
        EXPECT_EQ(restore(job, path).or_throw(), kStagedSteps);
        hashes[world.rank()] = hashes_of(job).state;
        comm::barrier(world.group(), {.label = "hashed"});
      });
      EXPECT_THAT(hashes, Each(hash)) << "pp " << from.pp << " to " << to.pp;
    }
  }
}

TEST_F(StagedJob, AGradientThatIsNotFiniteInOneStageSkipsTheStepOnAll) {
  plan::Plan plan = staged_plan({.pp = 2}, dataset());
  plan.config.train.nan = plan::NanPolicy::kSkip;
  const auto runs = run(plan, {}, [](Job& job) {
    if (job.stages->rank() == 0) return;
    job.strategy->parameters()[1].tensor.register_hook([](const at::Tensor& gradient) {
      return gradient * std::numeric_limits<double>::quiet_NaN();
    });
  });
  for (const StagedRun& one : runs) EXPECT_EQ(one.num_skipped, kStagedSteps);
}

TEST_F(StagedJob, CopiesOfATiedWeightThatDifferAreNamed) {
  const auto differ = [] {
    run(staged_plan({.pp = 2}, dataset()), {}, [](Job& job) {
      const at::NoGradGuard no_grad;
      for (const auto& one : job.strategy->parameters()) {
        if (one.name.ends_with("wte.weight")) one.tensor.add_(job.stages->rank());
      }
      check_parameters(job);
    });
  };
  EXPECT_THAT(differ, testing::ThrowsMessage<Error>(HasSubstr("wte.weight")));
}

}  // namespace
}  // namespace hanji::train
