// A job whose layers ranks share out trains and saves as the job of one rank.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "hanji/checkpoint/folder.h"
#include "hanji/checkpoint/hash.h"
#include "hanji/checkpoint/load.h"
#include "hanji/checkpoint/save.h"
#include "hanji/comm/all_reduce.h"
#include "hanji/comm/barrier.h"
#include "hanji/plan/pipeline_plan.h"
#include "hanji/test/temporary_folder.h"
#include "hanji/train/count_facts.h"
#include "hanji/train/state.h"
#include "hanji/train/test_job_run.h"

namespace hanji::train {
namespace {

using plan::PipelineKind;
using testing::Each;
using testing::Ge;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr int64_t kStagedSteps = 4;

struct StagedMesh {
  int64_t pp = 1;
  int64_t dp = 1;
  PipelineKind schedule = PipelineKind::k1F1B;
  int64_t virtual_stages = 1;
  bool recompute = false;
  bool tied = true;
  bool stable = false;
  int64_t tp = 1;
  bool sequence = false;
  plan::Sharding data = plan::Sharding::kReplicas;
  int64_t fsdp = 1;  ///< Ranks of a group of hsdp.
  plan::Reshard gathers =
      plan::Reshard::kAuto;    ///< Not auto: units are gathered, and resharded so.
  std::string lines = {};      ///< Of a schedule of the user.
  plan::CutsConfig cuts = {};  ///< In blocks, for stable bits.
};

/// Of 7 samples, so that data coordinates and micro-batches differ; stable of 8, so that grains fill
/// rounds.
plan::Plan staged_plan(const StagedMesh& mesh, const Dataset& dataset) {
  plan::PlanInputs inputs = float64_job(dataset);
  plan::Config& config = inputs.config;
  config.compute.recompute = mesh.recompute;
  config.model.tied = mesh.tied;
  if (mesh.stable) {
    config.train.global_batch = 8;
    config.train.bits = plan::Bits::kStable;
  }
  if (mesh.cuts.features > 1) {
    inputs.kernels.precision = config.compute.dtype = plan::Precision::kFloat32;
    config.train.cuts = mesh.cuts;
    config.model.heads = 3;
    config.model.width = 48;
  }
  config.parallel.data = mesh.data;
  config.run.ranks = mesh.pp * mesh.dp * mesh.fsdp * mesh.tp;
  if (mesh.fsdp > 1) config.mesh.fsdp = mesh.fsdp;
  config.parallel.reshard = mesh.gathers;
  config.parallel.share_memory = mesh.gathers == plan::Reshard::kAuto;
  config.mesh.pp = mesh.pp;
  config.mesh.tp = mesh.tp;
  config.parallel.sequence = mesh.sequence;
  if (mesh.pp > 1) {
    config.pipeline.schedule = mesh.schedule;
    config.pipeline.virtual_stages = mesh.virtual_stages;
    config.pipeline.lines = mesh.lines;
  }
  if (mesh.pp > 1 || mesh.tp > 1) inputs.model = count_facts(config, Workload{dataset});
  return plan::make_plan(inputs).or_throw();
}

struct StagedRun : JobRun {
  std::string hash;
};

class StagedJob : public testing::Test {
 protected:
  static const Dataset& dataset() {
    static const Dataset opened = open_dataset({}, 8, plan::kAuto).or_throw();
    return opened;
  }

  /// Saves to `folder` unless it is empty.
  static std::vector<StagedRun> run(const plan::Plan& plan,
                                    const std::filesystem::path& folder = {}) {
    std::vector<std::string> hashes(plan.ranks);
    const auto at_end = [&](const Job& job) {
      check_parameters(job);
      hashes[job.group.rank()] = hashes_of(job).state;
      comm::barrier(job.group, {.label = "hashed"});
      if (!folder.empty()) save(job, job.group, folder);
    };
    std::vector<StagedRun> all;
    for (JobRun& one : run_job(plan, dataset(), {.at_end = at_end})) {
      all.push_back({std::move(one), hashes[all.size()]});
    }
    return all;
  }

  static void save(const Job& job, const comm::Group& group, const std::filesystem::path& folder) {
    checkpoint::SaveOptions options{.folder = folder};
    const OwnState own = own_state(job);
    options.writer.num_parts = own.num_parts;
    if (group.rank() == 0) {
      base::throw_if_error(checkpoint::begin_checkpoint(options, kStagedSteps, {}));
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
    std::set<std::string> names;
    int64_t wire_bytes = 0;
    for (const StagedRun& one : runs) {
      wire_bytes += one.wire_bytes;
      EXPECT_EQ(one.losses, runs[0].losses);
      EXPECT_EQ(one.norms, runs[0].norms) << "or ranks would clip differently";
      EXPECT_EQ(one.hash, runs[0].hash);
      EXPECT_THAT(apart(one, expected), IsEmpty())
          << "pp " << mesh.pp << ", dp " << mesh.dp << ", " << name_of(mesh.schedule) << ", "
          << name_of(mesh.data);
      for (const auto& [name, value] : one.parameters) names.insert(name);
    }
    EXPECT_EQ(names.size(), expected.parameters.size());
    for (size_t i = 0; i < expected.losses.size(); ++i) {
      EXPECT_NEAR(runs[0].losses[i], expected.losses[i], kAdamDifference * expected.losses[i]);
    }
    for (size_t i = 0; i < expected.norms.size(); ++i) {
      EXPECT_NEAR(runs[0].norms[i], expected.norms[i], kAdamDifference * expected.norms[i]);
    }
    EXPECT_EQ(wire_bytes, plan.predicted.wire_bytes_per_step) << name_of(mesh.schedule);
    EXPECT_EQ(runs[0].collectives, plan.predicted.collectives_per_step);
  }

  static void expect_the_bits_of_one_rank(StagedMesh one, const std::vector<StagedMesh>& meshes) {
    one.stable = true;
    const StagedRun expected = run(staged_plan(one, dataset()))[0];
    for (StagedMesh mesh : meshes) {
      mesh.stable = true;
      mesh.tied = one.tied;
      mesh.cuts = one.cuts;
      const plan::Plan plan = staged_plan(mesh, dataset());
      const std::string name =
          fmt::format("pp {}, dp {}, tp {}, {}, {}, {}", mesh.pp, mesh.dp, mesh.tp,
                      name_of(mesh.schedule), name_of(mesh.data), mesh.tied ? "tied" : "untied");
      int64_t wire_bytes = 0;
      const std::vector<StagedRun> runs = run(plan);
      for (const StagedRun& rank : runs) {
        EXPECT_EQ(rank.hash, expected.hash) << name;
        EXPECT_EQ(rank.losses, expected.losses) << name;
        EXPECT_EQ(rank.norms, expected.norms) << name;
        wire_bytes += rank.wire_bytes;
      }
      EXPECT_EQ(wire_bytes, plan.predicted.wire_bytes_per_step) << name;
      EXPECT_EQ(runs[0].collectives, plan.predicted.collectives_per_step) << name;
    }
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

constexpr int64_t kBucket = -1, kLower = 1;

/// In each step of a rank, the buckets that have left before the last gradient of a parameter of its lower
/// stage.
std::vector<int64_t> early_buckets(const std::vector<int64_t>& events) {
  std::vector<int64_t> early;
  const auto step = std::ssize(events) / kStagedSteps;
  for (int64_t first = 0; first < std::ssize(events); first += step) {
    const std::span<const int64_t> all = std::span(events).subspan(first, step);
    early.push_back(std::count(std::find(all.rbegin(), all.rend(), kLower), all.rend(), kBucket));
  }
  return early;
}

bool is_among(const std::vector<at::Tensor>& some, const at::Tensor& one) {
  return std::ranges::any_of(some, [&](const at::Tensor& other) { return other.is_same(one); });
}

TEST_F(StagedJob, GradientsOfAStageLeaveAfterItsLastBackward) {
  for (const PipelineKind kind : {PipelineKind::kInterleaved, PipelineKind::kZbV}) {
    const int64_t asked = kind == PipelineKind::kInterleaved ? 2 : 1;  // a V always has two
    plan::Plan plan =
        staged_plan({.pp = 2, .dp = 2, .schedule = kind, .virtual_stages = asked}, dataset());
    plan.config.comm.bucket_bytes = 1;  // a bucket of each parameter
    std::vector<std::vector<int64_t>> events(plan.ranks);
    std::vector<int64_t> upper_alone(plan.ranks);
    const auto make = [&](const plan::Plan& of, const comm::Group& group) {
      std::vector<int64_t>& mine = events[group.rank()];
      parallel::DataParallelOptions options = reduction(of);
      options.hook.name = "recorded";
      options.hook.begin = [&](parallel::GradientBucket& bucket, const comm::Group& over) {
        mine.push_back(kBucket);
        return comm::all_reduce(bucket.flat, over);
      };
      Job job = assemble(of, group, options);
      std::vector<std::vector<at::Tensor>> parts;
      for (int stage = 0; stage <= job.pipeline.stages().last(); ++stage) {
        if (!job.pipeline.has(stage)) continue;
        parts.push_back(learning_in(*job.model, job.pipeline.stages().layers[stage]));
      }
      upper_alone[group.rank()] = std::ranges::count_if(
          parts[1], [&](const at::Tensor& one) { return !is_among(parts[0], one); });
      const auto low = std::ranges::find_if(
          parts[0], [&](const at::Tensor& one) { return !is_among(parts[1], one); });
      low->register_hook([&mine](const at::Tensor&) { mine.push_back(kLower); });
      return job;
    };
    run_job(plan, dataset(), {.make = make});
    for (int rank = 0; rank < plan.ranks; ++rank) {
      EXPECT_GT(upper_alone[rank], 0);
      EXPECT_THAT(early_buckets(events[rank]), Each(Ge(upper_alone[rank])))
          << name_of(kind) << ", rank " << rank;
    }
  }
}

TEST_F(StagedJob, TrainsAsOneRankDoesWhereLayersAreCutToo) {
  expect_the_run_of_one_rank({.pp = 2, .dp = 2, .tp = 2, .sequence = true});
  expect_the_run_of_one_rank({.pp = 3, .schedule = PipelineKind::kZbV, .recompute = true, .tp = 2});
}

TEST_F(StagedJob, TrainsAsOneRankDoesWithSeveralStagesPerRank) {
  expect_the_run_of_one_rank(
      {.pp = 2, .dp = 2, .schedule = PipelineKind::kInterleaved, .virtual_stages = 2});
  expect_the_run_of_one_rank({.pp = 2, .schedule = PipelineKind::kLoopedBfs, .virtual_stages = 3});
  expect_the_run_of_one_rank({.pp = 3, .schedule = PipelineKind::kZbV});
}

using plan::Sharding;

TEST_F(StagedJob, TrainsAsOneRankDoesWithTheStatesOfAStageSharded) {
  expect_the_run_of_one_rank({.pp = 2,
                              .dp = 3,
                              .schedule = PipelineKind::kZbV,
                              .recompute = true,
                              .data = Sharding::kZero3});
  expect_the_run_of_one_rank({.pp = 2,
                              .dp = 2,
                              .schedule = PipelineKind::kLoopedBfs,
                              .virtual_stages = 2,
                              .tied = false,
                              .data = Sharding::kZero2});
  expect_the_run_of_one_rank({.pp = 3, .data = Sharding::kZero1});
}

using plan::Reshard;

TEST_F(StagedJob, TrainsAsOneRankDoesWhereUnitsAreGathered) {
  for (const Reshard reshard : {Reshard::kStep, Reshard::kMicroBatch}) {
    expect_the_run_of_one_rank({.dp = 2,
                                .recompute = true,
                                .tied = reshard == Reshard::kStep,
                                .data = Sharding::kZero3,
                                .gathers = reshard});
  }
  expect_the_run_of_one_rank({.pp = 2,
                              .dp = 2,
                              .schedule = PipelineKind::kLoopedBfs,
                              .virtual_stages = 2,
                              .recompute = true,
                              .data = Sharding::kZero3,
                              .gathers = Reshard::kStep});
}

TEST_F(StagedJob, HasTheBitsOfOneRankWhereUnitsAreGathered) {
  const auto gathers = [](PipelineKind kind, int64_t stages, Reshard reshard) {
    return StagedMesh{.pp = 2,
                      .dp = 2,
                      .schedule = kind,
                      .virtual_stages = stages,
                      .data = Sharding::kZero3,
                      .gathers = reshard};
  };
  expect_the_bits_of_one_rank(
      {},
      {gathers(PipelineKind::kGpipe, 1, Reshard::kStep),
       gathers(PipelineKind::kInterleaved, 2, Reshard::kStep),
       gathers(PipelineKind::kZbV, 1, Reshard::kMicroBatch),
       {.pp = 2, .dp = 2, .data = Sharding::kHybrid, .fsdp = 2, .gathers = Reshard::kMicroBatch}});
  expect_the_bits_of_one_rank(
      {.tied = false},
      {gathers(PipelineKind::kZbV, 1, Reshard::kStep),
       {.dp = 2, .recompute = true, .data = Sharding::kZero3, .gathers = Reshard::kMicroBatch}});
}

TEST_F(StagedJob, HasTheBitsOfOneRankWhereStatesAreSharded) {
  const auto sharded = [](PipelineKind kind, int64_t stages, Sharding data) {
    return StagedMesh{.pp = 2, .dp = 2, .schedule = kind, .virtual_stages = stages, .data = data};
  };
  expect_the_bits_of_one_rank({}, {sharded(PipelineKind::kGpipe, 1, Sharding::kZero2),
                                   sharded(PipelineKind::kNaive, 1, Sharding::kZero3),
                                   sharded(PipelineKind::kZbH1, 1, Sharding::kZero3),
                                   sharded(PipelineKind::kInterleavedZb, 2, Sharding::kZero3),
                                   sharded(PipelineKind::kDualPipeV, 1, Sharding::kZero1),
                                   {.pp = 2,
                                    .dp = 3,
                                    .schedule = PipelineKind::kLoopedBfs,
                                    .virtual_stages = 2,
                                    .data = Sharding::kZero3}});
  expect_the_bits_of_one_rank(
      {.tied = false},
      {{.pp = 3, .dp = 2, .schedule = PipelineKind::kZbV, .data = Sharding::kZero3}});
}

TEST_F(StagedJob, HasTheBitsOfOneRankWhereTheyAreStable) {
  expect_the_bits_of_one_rank({}, {{.pp = 3, .schedule = PipelineKind::kGpipe},
                                   {.pp = 4, .schedule = PipelineKind::kNaive},
                                   {.pp = 2, .recompute = true}});
  expect_the_bits_of_one_rank({.tied = false}, {{.pp = 3, .schedule = PipelineKind::kZbH1}});
}

TEST_F(StagedJob, HasTheBitsOfOneRankInEveryOrderOfGrains) {
  expect_the_bits_of_one_rank(
      {}, {{.pp = 2, .schedule = PipelineKind::kInterleaved, .virtual_stages = 2},
           {.pp = 2, .dp = 2, .schedule = PipelineKind::kLoopedBfs, .virtual_stages = 2},
           {.pp = 2, .schedule = PipelineKind::kInterleavedZb, .virtual_stages = 3},
           {.pp = 3, .schedule = PipelineKind::kZbV}});
  expect_the_bits_of_one_rank({.tied = false}, {{.pp = 2, .schedule = PipelineKind::kDualPipeV}});
}

/// Of three blocks two ranks have two and one.
TEST_F(StagedJob, HasTheBitsOfOneRankWhereLayersAreCutInBlocksToo) {
  expect_the_bits_of_one_rank(
      {.cuts = {.features = 3}},
      {{.pp = 2, .recompute = true, .tp = 3},
       {.pp = 2, .dp = 2, .schedule = PipelineKind::kLoopedBfs, .virtual_stages = 2, .tp = 2}});
  expect_the_bits_of_one_rank({.tied = false, .cuts = {.features = 3}},
                              {{.pp = 3, .schedule = PipelineKind::kZbV, .tp = 2}});
}

TEST_F(StagedJob, HasTheBitsOfOneRankWithItsStreamCutByTokensToo) {
  expect_the_bits_of_one_rank({.cuts = {.features = 3, .tokens = 3}},
                              {{.pp = 2,
                                .schedule = PipelineKind::kInterleaved,
                                .virtual_stages = 2,
                                .tp = 3,
                                .sequence = true},
                               {.pp = 2, .dp = 2, .recompute = true, .tp = 2, .sequence = true}});
}

TEST_F(StagedJob, SumsEachUseOfATiedWeightByItselfInEveryStrategy) {
  expect_the_bits_of_one_rank({}, {{.dp = 2},
                                   {.dp = 3, .data = Sharding::kZero1},
                                   {.dp = 2, .data = Sharding::kZero2},
                                   {.dp = 2, .recompute = true, .data = Sharding::kZero3},
                                   {.dp = 3, .data = Sharding::kServer}});
}

TEST_F(StagedJob, ServersHaveTheBitsOfOneRankInBlocks) {
  expect_the_bits_of_one_rank({.cuts = {.features = 3}},
                              {{.dp = 3, .data = plan::Sharding::kServer},
                               {.dp = 2, .tp = 2, .data = plan::Sharding::kServer}});
}

TEST_F(StagedJob, TrainsAsOneRankDoesByTheLinesOfAFile) {
  expect_the_run_of_one_rank({.pp = 2,
                              .schedule = PipelineKind::kUser,
                              .lines = "0F0,0F1,2F0,2B0,0B0,2F1,2B1,0B1\n1F0,1F1,1B0,1B1\n"});
}

TEST_F(StagedJob, ARankMakesTheParametersOfItsStagesAlone) {
  const auto made_bytes = [](const plan::Plan& plan, int rank) {
    const auto found = std::make_shared<int64_t>(0);
    const auto make = [=](const plan::Plan& of, const comm::Group& group) {
      const PrivateMemory memory;
      Job job = assemble(of, group);
      if (group.rank() == rank) *found = memory.peak_bytes();
      return job;
    };
    run_job(plan, dataset(), {.make = make});
    return *found;
  };
  const int64_t whole = made_bytes(staged_plan({.tied = false}, dataset()), 0);
  const plan::Plan plan = staged_plan({.pp = 6, .tied = false}, dataset());
  for (int rank = 0; rank < plan.ranks; ++rank) {
    const int64_t own = plan::facts_of_rank(plan, rank).num_parameters() * 8;
    const int64_t all = plan.model.num_parameters() * 8;
    // Parameters, then as many bytes twice for the moments, beside what has no memory of a parameter's size.
    EXPECT_LT(made_bytes(plan, rank), whole * own / all + (int64_t{1} << 14)) << "rank " << rank;
  }
}

TEST_F(StagedJob, SavesAndRestoresTheStateOfTheWholeModel) {
  const std::vector<StagedMesh> meshes = {
      {.pp = 1},
      {.pp = 2, .dp = 2},
      {.pp = 3},
      {.pp = 2, .tp = 2},
      {.pp = 2, .dp = 2, .data = Sharding::kZero1},
      {.pp = 3, .dp = 2, .data = Sharding::kZero3},
      {.pp = 2, .dp = 2, .data = Sharding::kZero3, .gathers = Reshard::kStep},
      {.pp = 2, .schedule = PipelineKind::kZbV}};
  for (const StagedMesh& from : meshes) {
    const test::TemporaryFolder folder;
    const std::string hash = run(staged_plan(from, dataset()), folder.path())[0].hash;
    const auto path = folder.path() / checkpoint::folder_name(kStagedSteps);
    const auto saved = checkpoint::load_checkpoint(path).or_throw();
    EXPECT_EQ(checkpoint::state_hash(saved.model, saved.optimizer), hash) << "pp " << from.pp;
    // By itself and two others: rings of all meshes.
    for (const size_t further : {size_t{0}, size_t{1}, size_t{3}}) {
      const StagedMesh& to = meshes[(&from - meshes.data() + further) % meshes.size()];
      const plan::Plan plan = staged_plan(to, dataset());
      std::vector<std::string> hashes(plan.ranks);
      test::run_ranks(plan.ranks, [&](world::World& world) {
        compute::apply(plan.kernels, 1);
        Job job = assemble(plan, world.group());
        EXPECT_EQ(restore(job, path).or_throw(), kStagedSteps);
        comm::barrier(world.group(), {.label = "restored"});
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
  const auto at_start = [](Job& job) {
    if (job.stages->rank() == 0) return;
    job.strategy->parameters()[1].tensor.register_hook([](const at::Tensor& gradient) {
      return gradient * std::numeric_limits<double>::quiet_NaN();
    });
  };
  for (const JobRun& one : run_job(plan, dataset(), {.at_start = at_start}))
    EXPECT_EQ(one.num_skipped, kStagedSteps);
}

TEST_F(StagedJob, CopiesOfATiedWeightThatDifferAreNamed) {
  const auto differ = [] {
    const auto at_start = [](Job& job) {
      const at::NoGradGuard no_grad;
      for (const auto& one : job.strategy->parameters()) {
        if (one.name.ends_with("wte.weight")) one.tensor.add_(job.stages->rank());
      }
      check_parameters(job);
    };
    run_job(staged_plan({.pp = 2}, dataset()), dataset(), {.at_start = at_start});
  };
  EXPECT_THAT(differ, testing::ThrowsMessage<Error>(HasSubstr("wte.weight")));
}

}  // namespace
}  // namespace hanji::train
