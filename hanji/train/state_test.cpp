// A state that ranks save in parts is one that any other plan goes on with, also if an axis cuts it.
#include "hanji/train/state.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "hanji/checkpoint/diff.h"
#include "hanji/checkpoint/folder.h"
#include "hanji/comm/barrier.h"
#include "hanji/compute/apply.h"
#include "hanji/layers/model.h"
#include "hanji/plan/test_plan.h"
#include "hanji/test/run_ranks.h"
#include "hanji/test/temporary_folder.h"
#include "hanji/train/loop.h"
#include "hanji/train/observe_rank.h"
#include "hanji/train/one_process.h"
#include "hanji/train/test_cut_model.h"
#include "hanji/train/test_dataset.h"

namespace hanji::train {
namespace {

using plan::Sharding;

constexpr int64_t kSavedSteps = 2;

struct StateCase {
  Sharding data;
  plan::MeshConfig mesh;
  bool cut_model = false;  ///< A CutModel, not a GPT.
};

Job assembled(const StateCase& of, const plan::Plan& plan, const comm::Group& group) {
  if (!of.cut_model) return assemble(plan, group);
  return assemble(plan, group, [&](const plan::Config&, const models::MakeOptions&) {
    return std::make_shared<CutModel>(plan.mesh.coordinate(group.rank(), "tp"),
                                      plan.mesh.degree("tp"));
  });
}

/// A plan with any strategy for a mesh with "tp": "axial" stands in its place, and plans do not
/// restrict it to models and strategies that there are.
plan::Plan with_tp(plan::Plan plan) {
  std::vector<layout::Axis> axes = plan.mesh.axes();
  for (layout::Axis& axis : axes) {
    if (axis.name == "axial") axis.name = "tp";
  }
  plan.mesh = layout::MeshShape::create(axes, static_cast<int>(plan.ranks)).or_throw();
  plan.config.mesh.axial = 1;
  return plan;
}

plan::Plan planned_state(const StateCase& of, const Dataset& dataset) {
  plan::PlanInputs inputs = plan::test_plan::small_gpt(dataset.facts());
  inputs.cut_axes = layout::kAxisNames;
  plan::Config& config = inputs.config;
  config.run.ranks = of.mesh.dp * of.mesh.fsdp * of.mesh.tp;
  config.parallel.data = of.data;
  config.mesh = of.mesh;
  std::swap(config.mesh.tp, config.mesh.axial);
  config.train.steps = kSavedSteps;
  config.train.global_batch = 6;
  if (of.cut_model) {
    config.train.clip = 0;  // The norm of parts is not the whole's.
    // Elements of a part may be updated by a vector instruction that fuses, and elements of the whole by
    // one that does not: with these rates both round alike.
    config.train.beta1 = 0.5;
    config.train.beta2 = 0;
  }
  return with_tp(plan::make_plan(inputs).or_throw());
}

/// What a rank has saved, and the bytes of all.
struct SavedByRank {
  int64_t own = 0, all = 0;
};

/// Trains, and saves in as many parts as the strategy has. Result: the hash of what was saved.
std::string trained_and_saved(const StateCase& of, const std::filesystem::path& folder,
                              std::vector<SavedByRank>& saved) {
  const plan::Plan plan = planned_state(of, bytes_of_text());
  saved.assign(plan.ranks, {});
  std::string hash;
  test::run_ranks(plan.ranks, [&](world::World& world) {
    compute::apply(plan.kernels, 1);
    PrivateMemory memory;
    StopSignal stop = StopSignal::create().or_throw();
    Job job = assembled(of, plan, world.group());
    run_loop(job, {.plan = plan,
                   .dataset = bytes_of_text(),
                   .memory = memory,
                   .stop = stop,
                   .save = [](int64_t, double) {},
                   .before_update = [] {}});
    comm::barrier(world.group(), {.label = "trained"});
    const checkpoint::State state = state_to_save(job);
    saved[world.rank()] = {state.num_bytes(), size_of_state(job).bytes};
    const OwnState own = own_state(job);
    checkpoint::SaveOptions options{.folder = folder, .copy_bytes = 1000};
    options.writer.num_parts = own.num_parts;
    const std::string own_hash = hashes_of(job).state;
    if (world.rank() == 0) {
      hash = own_hash;
      base::throw_if_error(checkpoint::begin_checkpoint(options, kSavedSteps, {}));
    }
    comm::barrier(world.group(), {.label = "begun"});
    if (!own.part) return;
    options.writer.part = *own.part;
    base::throw_if_error(checkpoint::save_checkpoint(options, state, {.step = kSavedSteps}));
  });
  return hash;
}

/// By rank, the hash after restore(), and after `tamper`.
std::vector<std::string> restored_by(
    const StateCase& of, const std::filesystem::path& saved,
    const std::function<void(Job&)>& tamper = [](Job&) {}) {
  const plan::Plan plan = planned_state(of, bytes_of_text());
  std::vector<std::string> hashes(plan.ranks);
  test::run_ranks(plan.ranks, [&](world::World& world) {
    compute::apply(plan.kernels, 1);
    Job job = assembled(of, plan, world.group());
    EXPECT_EQ(restore(job, saved).or_throw(), kSavedSteps);
    comm::barrier(world.group(), {.label = "restored"});
    EXPECT_EQ(job.strategy->state().num_updates, kSavedSteps);
    tamper(job);
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

/// Each mesh with the axis, and the same without.
std::vector<StateCase> cut_cases() {
  return {{Sharding::kReplicas, {.dp = 1, .fsdp = 1, .tp = 2}, true},
          {Sharding::kReplicas, {.dp = 2, .fsdp = 1, .tp = 2}, true},
          {Sharding::kReplicas, {.dp = 1, .fsdp = 1, .tp = 4}, true},
          {Sharding::kServer, {.dp = 2, .fsdp = 1, .tp = 2}, true},
          {Sharding::kZero1, {.dp = 1, .fsdp = 2, .tp = 2}, true},
          {Sharding::kZero2, {.dp = 1, .fsdp = 2, .tp = 2}, true},
          {Sharding::kZero3, {.dp = 1, .fsdp = 2, .tp = 2}, true},
          {Sharding::kZero3, {.dp = 1, .fsdp = 1, .tp = 3}, true},
          {Sharding::kHybrid, {.dp = 2, .fsdp = 2, .tp = 2}, true},
          {Sharding::kReplicas, {.dp = 1, .fsdp = 1}, true}};
}

std::string name_of(const StateCase& of) {
  return fmt::format("{} dp {} fsdp {} tp {}", plan::name_of(of.data), of.mesh.dp, of.mesh.fsdp,
                     of.mesh.tp);
}

TEST(SavedState, OfACutModelIsThatOfTheWholeOne) {
  for (const StateCase& cut : cut_cases()) {
    StateCase whole = cut;
    whole.mesh.tp = 1;
    const test::TemporaryFolder folder;
    std::vector<SavedByRank> saved;
    const std::string expected = trained_and_saved(whole, folder.path() / "whole", saved);
    EXPECT_EQ(trained_and_saved(cut, folder.path() / "cut", saved), expected) << name_of(cut);
    const auto name = checkpoint::folder_name(kSavedSteps);
    const auto one = checkpoint::load_checkpoint(folder.path() / "whole" / name).or_throw();
    const auto parts = checkpoint::load_checkpoint(folder.path() / "cut" / name).or_throw();
    EXPECT_TRUE(checkpoint::diff(one.model, parts.model).empty()) << name_of(cut);
    EXPECT_TRUE(checkpoint::diff(one.optimizer, parts.optimizer).empty()) << name_of(cut);
    EXPECT_EQ(checkpoint::state_hash(parts.model, parts.optimizer), expected) << name_of(cut);
  }
}

TEST(SavedState, OfAnyMeshIsRestoredByOthers) {
  const std::vector<StateCase> all = cut_cases();
  const std::vector<StateCase> others = {all[2], all[5], all[8], all.back()};
  for (const StateCase& from : all) {
    const test::TemporaryFolder folder;
    std::vector<SavedByRank> saved;
    const std::string hash = trained_and_saved(from, folder.path(), saved);
    int64_t sum = 0;
    for (const SavedByRank& rank : saved) {
      sum += rank.own;
      EXPECT_EQ(rank.all, saved[0].all);
    }
    EXPECT_EQ(sum, saved[0].all) << "each element is saved once";
    for (const StateCase& to : others) {
      EXPECT_THAT(restored_by(to, folder.path() / checkpoint::folder_name(kSavedSteps)),
                  testing::Each(hash))
          << name_of(from) << " to " << name_of(to);
    }
  }
}

TEST(SavedState, WithoutTheMomentsOfOnePartHasAnotherHash) {
  const std::vector<StateCase> cases = cut_cases();
  const test::TemporaryFolder folder;
  std::vector<SavedByRank> saved;
  const std::string hash = trained_and_saved(cases[0], folder.path(), saved);
  const auto hashes =
      restored_by(cases[2], folder.path() / checkpoint::folder_name(kSavedSteps), [](Job& job) {
        if (job.cut->rank() != 1) return;
        for (const auto& [name, moment] : job.strategy->state().moments) moment.zero_();
      });
  EXPECT_THAT(hashes, testing::Each(testing::Ne(hash)));
}

TEST(SavedState, OfACutModelHasEveryRankSaveItsPart) {
  const test::TemporaryFolder folder;
  std::vector<SavedByRank> saved;
  trained_and_saved({Sharding::kReplicas, {.dp = 2, .fsdp = 1, .tp = 2}, true}, folder.path(),
                    saved);
  EXPECT_GT(saved[1].own, saved[1].all / 4);
  EXPECT_EQ(saved[2].own + saved[3].own, 0) << "their replicas do";
}

TEST(SavedState, OfACutModelIsSeenByVerifyAsOneProcessHasIt) {
  const StateCase of{Sharding::kZero3, {.dp = 1, .fsdp = 1, .tp = 2}, true};
  const plan::Plan plan = planned_state(of, bytes_of_text());
  const test::TemporaryFolder folder;
  const auto file = [&](int rank) { return folder.path() / std::to_string(rank); };
  compute::apply(plan.kernels, 1);
  OneProcess alone(plan, bytes_of_text(), [](const plan::Config&, const models::MakeOptions&) {
    return std::make_shared<CutModel>(0, 1);
  });
  const auto expected =
      observe(alone, kSavedSteps, {.keep_step = kSavedSteps, .keep_file = file(-1)});
  std::vector<report::ObservedRun> seen(plan.ranks);
  test::run_ranks(plan.ranks, [&](world::World& world) {
    ObservedParts parts;
    parts.assemble = [&](const plan::Plan& planned, const comm::Group& group) {
      return assembled(of, planned, group);
    };
    ObserveOptions keep{.keep_step = kSavedSteps};
    if (world.rank() == 1) keep.keep_file = file(1);
    seen[world.rank()] = observe_rank(plan, bytes_of_text(), world.group(), keep, parts);
  });
  for (const report::ObservedRun& rank : seen) {
    EXPECT_EQ(rank.state_sha256, expected.state_sha256);
    for (size_t step = 0; step < rank.steps.size(); ++step) {
      EXPECT_EQ(rank.steps[step].parameters_sha256, expected.steps[step].parameters_sha256);
      const auto digests = [&](const report::ObservedRun& run) {
        auto all = run.steps[step].digests;
        std::erase_if(all, [](const auto& one) { return one.name == "gradient norm"; });
        return all;
      };
      EXPECT_EQ(digests(rank), digests(expected)) << step;
    }
  }
  EXPECT_TRUE(checkpoint::diff(checkpoint::SafetensorsFile::open(file(-1)).or_throw(),
                               checkpoint::SafetensorsFile::open(file(1)).or_throw())
                  .empty());
}

TEST(SavedState, OfPartsThatTheirPlacementsDoNotGiveIsRefused) {
  const StateCase of{Sharding::kReplicas, {.dp = 1, .fsdp = 1, .tp = 3}, true};
  const plan::Plan plan = planned_state(of, bytes_of_text());
  EXPECT_THAT(
      [&] {
        test::run_ranks(plan.ranks, [&](world::World& world) {
          assemble(plan, world.group(), [&](const plan::Config&, const models::MakeOptions&) {
            return std::make_shared<CutModel>(2 - world.rank(), 3);
          });
        });
      },
      testing::ThrowsMessage<Error>(testing::HasSubstr("MakeOptions::axis")));
}

TEST(SavedState, IsCutAmongTheRanksThatCutTheModel) {
  const test::TemporaryFolder folder;
  std::vector<SavedByRank> saved;
  trained_and_saved({Sharding::kZero3, {.dp = 1, .fsdp = 4}}, folder.path(), saved);
  for (const SavedByRank& rank : saved) EXPECT_LT(rank.own, rank.all / 2);
}

}  // namespace
}  // namespace hanji::train
