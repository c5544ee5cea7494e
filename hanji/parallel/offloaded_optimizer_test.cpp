#include "hanji/parallel/offload/offloaded_optimizer.h"

#include <gmock/gmock.h>
#include <torch/types.h>

#include <filesystem>

#include "hanji/base/status.h"
#include "hanji/parallel/fsdp/fully_shard.h"
#include "hanji/parallel/fsdp/shard_optimizer.h"
#include "hanji/parallel/fsdp/whole_values.h"
#include "hanji/parallel/server/parameter_server.h"
#include "hanji/parallel/test_disk.h"
#include "hanji/parallel/test_net.h"
#include "hanji/test/temporary_folder.h"

namespace hanji::parallel {
namespace {

using test::run_ranks;
using test_net::refusal;
using testing::HasSubstr;
namespace fs = std::filesystem;

std::unique_ptr<FlatOptimizer> make_adamw(FlatPart part, const SumOverParts& /*sum*/) {
  return flat_adamw(std::move(part));
}

/// Two parts, of 3 pieces and of 1, with parameters that end anywhere, and gradients by step.
struct TwoParts {
  explicit TwoParts(at::ScalarType dtype) {
    for (const int64_t count : {int64_t{2 * 4096 + 640}, int64_t{320}}) {
      const at::Tensor values = torch::arange(count, torch::kDouble).sin().to(dtype);
      FlatPart part{values, torch::zeros_like(values), {}};
      const int64_t cut = count / 128 * 64;
      part.pieces = {{"a", {cut - 5}, 0, {0, cut - 5}, {1, .1}},
                     {"b", {count - cut}, 0, {cut, count}, {.5, 0}}};
      parts.push_back(part);
    }
  }
  void set_gradients(int step) {
    for (FlatPart& part : parts) {
      const auto index = torch::arange(part.gradients.numel(), torch::kDouble);
      part.gradients.copy_(index.mul(.37).add(step).cos());
    }
  }
  std::vector<FlatPart> parts;
};

/// Five steps; `optimizers` are of a part each, or one of all.
template <class Optimizers>
void five_steps(TwoParts& model, const Optimizers& optimizers) {
  for (int step = 0; step < 5; ++step) {
    model.set_gradients(step);
    for (const auto& optimizer : optimizers) optimizer->step(.01, 2.0);
  }
}

void expect_bits_of_memory(const MakeOptimizer& make, at::ScalarType dtype,
                           const OffloadOptions& options) {
  TwoParts in_memory(dtype), in_file(dtype);
  std::vector<std::unique_ptr<FlatOptimizer>> expected, optimizers;
  for (const FlatPart& part : in_memory.parts) expected.push_back(make(part, {}));
  five_steps(in_memory, expected);
  optimizers.push_back(offloaded(make, options, in_file.parts));
  five_steps(in_file, optimizers);
  EXPECT_EQ(optimizers[0]->num_updates(), 5);
  std::vector<NamedParameter> states;
  for (const auto& optimizer : expected) {
    for (const auto& entry : optimizer->state()) states.push_back(entry);
  }
  const auto found = optimizers[0]->state();
  ASSERT_EQ(found.size(), states.size());
  for (size_t i = 0; i < states.size(); ++i) {
    EXPECT_TRUE(at::equal(found[i].tensor, states[i].tensor)) << found[i].name;
  }
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_TRUE(at::equal(in_file.parts[i].parameters, in_memory.parts[i].parameters)) << i;
  }
}

TEST(OffloadedOptimizer, FiveStepsHaveTheBitsOfStateInMemory) {
  const test::TemporaryFolder folder;
  const std::vector<MakeOptimizer> kinds{
      make_adamw,
      [](FlatPart part, const SumOverParts&) {
        return flat_sgd(std::move(part), {.momentum = .9});
      },
      [](FlatPart part, const SumOverParts&) { return flat_lion(std::move(part)); },
      [](FlatPart part, const SumOverParts&) { return flat_sgd(std::move(part)); }};
  for (const auto& kind : kinds) {
    expect_bits_of_memory(kind, torch::kFloat, {.folder = folder.path(), .piece_elements = 4096});
  }
  for (const int windows : {2, 7}) {
    expect_bits_of_memory(
        make_adamw, torch::kFloat,
        {.folder = folder.path(), .piece_elements = 4096, .num_windows = windows});
  }
  expect_bits_of_memory(make_adamw, torch::kDouble,
                        {.folder = folder.path(), .engine = base::ScratchEngine::kThread});
  EXPECT_TRUE(fs::is_empty(folder.path()));
}

TEST(OffloadedOptimizer, MemoryDoesNotHoldTheMoments) {
  const test::TemporaryFolder folder;
  constexpr int64_t kCount = 8 << 20;
  FlatPart part{torch::ones({kCount}), torch::ones({kCount}), {}};
  part.pieces = {{"a", {kCount}, 0, {0, kCount}, {}}};
  const int64_t before = test_disk::private_bytes();
  const auto optimizer = offloaded(
      make_adamw, {.folder = folder.path(), .piece_elements = 1 << 18, .num_windows = 3}, {part});
  for (int step = 0; step < 2; ++step) optimizer->step(.01, 1);
  EXPECT_EQ(optimizer->window_bytes(), 3 * 2 * (4 << 18));
  EXPECT_EQ(optimizer->state_bytes(), 2 * 4 * kCount);
  const int64_t grown = test_disk::private_bytes() - before;
  // 64 MiB of moments, 6 MiB of windows; the rest is room for the allocator.
  EXPECT_LT(grown, 16 << 20);
}

TEST(OffloadedOptimizer, AfterAFailureEveryCallIsRefused) {
  const test::TemporaryFolder folder;
  TwoParts model(torch::kFloat);
  const auto optimizer =
      offloaded(make_adamw, {.folder = folder.path(), .piece_elements = 4096}, model.parts);
  optimizer->step(.01, 1);
  EXPECT_EQ(optimizer->state().size(), 4u);
  test_disk::cut_files_of(folder.path(), 4096);
  const auto what = [&] { return refusal([&] { optimizer->step(.01, 1); }); };
  EXPECT_THAT(what(), testing::AllOf(HasSubstr("offloaded optimizer: scratch file in " +
                                               folder.path().string()),
                                     HasSubstr("somebody has cut the file")));
  EXPECT_THAT(what(), HasSubstr("somebody has cut the file"));
  EXPECT_THAT(refusal([&] { optimizer->state(); }), HasSubstr("somebody has cut the file"));
}

TEST(OffloadedOptimizer, BadUseIsNamed) {
  const test::TemporaryFolder folder;
  TwoParts model(torch::kFloat);
  const auto refused = [&](const MakeOptimizer& make, const OffloadOptions& options) {
    return refusal([&] { offloaded(make, options, model.parts); });
  };
  const MakeOptimizer adafactor = [](FlatPart part, const SumOverParts&) {
    return flat_adafactor(std::move(part));
  };
  const fs::path path = folder.path();
  EXPECT_THAT(refused(adafactor, {.folder = path}), HasSubstr("variances does not lie as"));
  EXPECT_THAT(refused(make_adamw, {.folder = path, .piece_elements = 100}), HasSubstr("4096"));
  EXPECT_THAT(refused(make_adamw, {.folder = path, .num_windows = 1}), HasSubstr("at least 2"));
  EXPECT_THAT(refused(make_adamw, {.folder = path / "none"}), HasSubstr((path / "none").string()));
  const auto optimizer = offloaded(make_adamw, {.folder = path}, model.parts);
  EXPECT_THAT(refusal([&] { optimizer->values("momentum"); }),
              HasSubstr("first_moment, second_moment"));
  model.parts[0].parameters = model.parts[0].parameters.to(torch::kMeta);
  EXPECT_THAT(refused(make_adamw, {.folder = path}), HasSubstr("parameters are on meta"));
}

/// test_net::Values of the module after three steps of a rank; then its moments, whole.
test_net::Values train_sharded(world::World& world, bool whole_units, const fs::path& folder) {
  test_net::Net net(torch::kFloat);
  auto sharded =
      whole_units ? shard_optimizer(net, world.group(), {.unit_bytes = 20000})
                  : fully_shard(net, world.group(),
                                {.sharding = {.share_memory = false}, .calls = UnitCalls::kLens});
  std::unique_ptr<FlatOptimizer> optimizer;
  if (folder.empty()) {
    optimizer = optimizer_of_parts(make_adamw, sharded.flat_parts());
  } else {
    optimizer = offloaded(make_adamw, {.folder = folder}, sharded.flat_parts());
  }
  for (int step = 0; step < 5; ++step) {
    for (const at::Tensor& shard : sharded.parameters()) shard.mutable_grad() = at::Tensor();
    test_net::mean_loss(net, step, world.rank() * 6, world.rank() * 6 + 6).backward();
    sharded.step([&] { optimizer->step(1e-2, 1); });
  }
  test_net::Values values;
  {
    const auto full = sharded.full_parameters();
    values = test_net::values_of(net);
  }
  if (folder.empty()) return values;
  const auto& in_file = static_cast<const OffloadedOptimizer&>(*optimizer);
  const auto whole = gather_values(sharded, in_file.values("first_moment"));
  for (const auto& entry : whole) EXPECT_GT(entry.tensor.abs().max().item<float>(), 0);
  const auto moments = in_file.values("first_moment"), again = scatter_values(sharded, whole);
  for (size_t i = 0; i < moments.size(); ++i) {
    moments[i].copy_(again[i].view({-1}));  // as after loading
    EXPECT_TRUE(at::equal(in_file.values("first_moment")[i], again[i].view({-1})));
  }
  return values;
}

TEST(OffloadedOptimizer, ShardsTrainToTheSameBits) {
  const test::TemporaryFolder folder;
  for (const bool whole_units : {true, false}) {
    run_ranks(2, [&](world::World& world) {
      const test_net::Values expected = train_sharded(world, whole_units, {});
      EXPECT_TRUE(test_net::same_bits(train_sharded(world, whole_units, folder.path()), expected));
    });
  }
}

TEST(OffloadedOptimizer, AServerMayKeepItsStateSo) {
  const test::TemporaryFolder folder;
  run_ranks(2, [&](world::World& world) {
    std::vector<test_net::Values> found;
    for (const bool in_file : {false, true}) {
      test_net::Net net(torch::kFloat);
      ParameterServerOptions options;
      if (in_file) {
        options.make_optimizer = [&](FlatPart part, const SumOverParts&) {
          return offloaded(make_adamw, {.folder = folder.path()}, {std::move(part)});
        };
      }
      auto server = parameter_server(net, world.group(), options);
      for (int step = 0; step < 3; ++step) {
        net.zero_grad();
        test_net::mean_loss(net, step, world.rank() * 6, world.rank() * 6 + 6).backward();
        server.step(1e-2);
      }
      server.synchronize();
      found.push_back(test_net::values_of(net));
    }
    EXPECT_TRUE(test_net::same_bits(found[0], found[1]));
  });
}

}  // namespace
}  // namespace hanji::parallel
