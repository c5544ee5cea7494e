// A state that ranks save in parts is one that any other plan goes on with.
#include "hanji/train/state.h"

#include <gmock/gmock.h>

#include "hanji/checkpoint/folder.h"
#include "hanji/comm/barrier.h"
#include "hanji/compute/apply.h"
#include "hanji/layers/model.h"
#include "hanji/plan/test_plan.h"
#include "hanji/test/run_ranks.h"
#include "hanji/test/temporary_folder.h"
#include "hanji/train/loop.h"

namespace hanji::train {
namespace {

using plan::Sharding;

constexpr int64_t kSavedSteps = 2;

struct StateCase {
  Sharding data;
  plan::MeshConfig mesh;
};

plan::Plan planned_state(const StateCase& of, const Dataset& dataset) {
  plan::PlanInputs inputs = plan::test_plan::small_gpt(dataset.facts());
  plan::Config& config = inputs.config;
  config.run.ranks = of.mesh.dp * of.mesh.fsdp;
  config.parallel.data = of.data;
  config.mesh = of.mesh;
  config.train.steps = kSavedSteps;
  config.train.global_batch = 6;
  return plan::make_plan(inputs).or_throw();
}

const Dataset& some_bytes() {
  static const Dataset opened = [] {
    plan::DataConfig bytes;
    bytes.vocabulary = plan::VocabularyKind::kByte;
    return open_dataset(bytes, 8, plan::kAuto).or_throw();
  }();
  return opened;
}

/// What a rank has saved, and the bytes of all.
struct SavedByRank {
  int64_t own = 0, all = 0;
};

/// Trains, and saves in as many parts as the strategy has. Result: the hash of what was saved.
std::string trained_and_saved(const StateCase& of, const std::filesystem::path& folder,
                              std::vector<SavedByRank>& saved) {
  const plan::Plan plan = planned_state(of, some_bytes());
  saved.assign(plan.ranks, {});
  std::string hash;
  test::run_ranks(plan.ranks, [&](world::World& world) {
    compute::apply(plan.kernels, 1);
    PrivateMemory memory;
    StopSignal stop = StopSignal::create().or_throw();
    Job job = assemble(plan, world.group());
    run_loop(job, {.plan = plan,
                   .dataset = some_bytes(),
                   .memory = memory,
                   .stop = stop,
                   .save = [](int64_t, double) {},
                   .before_update = [] {}});
    comm::barrier(world.group(), {.label = "trained"});
    const checkpoint::State state = state_to_save(job);
    saved[world.rank()] = {state.num_bytes(), state_bytes(job)};
    const OwnState own = own_state(job);
    checkpoint::SaveOptions options{.folder = folder, .copy_bytes = 1000};
    options.writer.num_parts = own.num_parts;
    if (world.rank() == 0) {
      hash = hashes_of(job).state;
      base::throw_if_error(checkpoint::begin_checkpoint(options, kSavedSteps, 0));
    }
    comm::barrier(world.group(), {.label = "begun"});
    if (!own.part) return;
    options.writer.part = *own.part;
    base::throw_if_error(checkpoint::save_checkpoint(options, state, {.step = kSavedSteps}));
  });
  return hash;
}

/// By rank, the hash after restore().
std::vector<std::string> restored_by(const StateCase& of, const std::filesystem::path& saved) {
  const plan::Plan plan = planned_state(of, some_bytes());
  std::vector<std::string> hashes(plan.ranks);
  test::run_ranks(plan.ranks, [&](world::World& world) {
    compute::apply(plan.kernels, 1);
    Job job = assemble(plan, world.group());
    EXPECT_EQ(restore(job, saved).or_throw(), kSavedSteps);
    comm::barrier(world.group(), {.label = "restored"});
    EXPECT_EQ(job.strategy->state().num_updates, kSavedSteps);
    hashes[world.rank()] = hashes_of(job).state;
    comm::barrier(world.group(), {.label = "hashed"});
  });
  return hashes;
}

TEST(SavedState, IsRestoredByAnyStrategyOnAnyNumberOfRanks) {
  const std::vector<StateCase> cases = {
      {Sharding::kReplicas, {.dp = 3, .fsdp = 1}}, {Sharding::kReplicas, {.dp = 1, .fsdp = 1}},
      {Sharding::kServer, {.dp = 3, .fsdp = 1}},   {Sharding::kZero1, {.dp = 1, .fsdp = 3}},
      {Sharding::kZero3, {.dp = 1, .fsdp = 2}},    {Sharding::kHybrid, {.dp = 2, .fsdp = 2}}};
  for (const StateCase& from : cases) {
    const test::TemporaryFolder folder;
    std::vector<SavedByRank> saved;
    const std::string hash = trained_and_saved(from, folder.path(), saved);
    int64_t sum = 0;
    for (const SavedByRank& rank : saved) sum += rank.own;
    EXPECT_EQ(sum, saved[0].all) << "each element is saved once";
    const std::filesystem::path path = folder.path() / checkpoint::folder_name(kSavedSteps);
    for (const StateCase& to : cases) {
      EXPECT_THAT(restored_by(to, path), testing::Each(hash))
          << plan::name_of(from.data) << " to " << plan::name_of(to.data);
    }
  }
}

TEST(SavedState, IsCutAmongTheRanksThatCutTheModel) {
  const test::TemporaryFolder folder;
  std::vector<SavedByRank> saved;
  trained_and_saved({Sharding::kZero3, {.dp = 1, .fsdp = 4}}, folder.path(), saved);
  for (const SavedByRank& rank : saved) EXPECT_LT(rank.own, rank.all / 2);
}

}  // namespace
}  // namespace hanji::train
