#include <gmock/gmock.h>
#include <malloc.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>

#include <filesystem>
#include <functional>
#include <memory>

#include "hanji/base/status.h"
#include "hanji/comm/heap.h"
#include "hanji/lens/deferred.h"
#include "hanji/parallel/fsdp/description.h"
#include "hanji/parallel/fsdp/fully_shard.h"
#include "hanji/parallel/fsdp/sequential.h"
#include "hanji/parallel/fsdp/shard_optimizer.h"
#include "hanji/parallel/fsdp/unit.h"
#include "hanji/parallel/fsdp/whole_values.h"
#include "hanji/parallel/loss_scaler.h"
#include "hanji/parallel/offload/offloaded_optimizer.h"
#include "hanji/parallel/test_disk.h"
#include "hanji/parallel/test_net.h"
#include "hanji/test/temporary_folder.h"

// A namespace of its own: other tests have towers, too.
namespace hanji::parallel::offloaded_shards_test {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;

struct FloorImpl : torch::nn::Module {
  FloorImpl(int64_t inner, const at::Tensor& shared) : shift(register_parameter("shift", shared)) {
    widen = register_module("widen", torch::nn::Linear(24, inner));
    narrow = register_module("narrow", torch::nn::Linear(inner, 24));
  }
  at::Tensor forward(const at::Tensor& x) {
    return x + narrow(torch::tanh(widen(x))) + torch::sin(shift);
  }
  torch::nn::Linear widen = nullptr, narrow = nullptr;
  at::Tensor shift;
};
TORCH_MODULE(Floor);

/// Units of several sizes, some smaller than a block, with a shift that all share, a frozen unit, a
/// frozen bias and a parameter that only some steps use.
struct Tower : torch::nn::Module {
  explicit Tower(int seed = 0, bool by_unit_of = true) : by_unit(by_unit_of) {
    const at::Tensor shift = torch::zeros({24});
    for (int i = 0; i < 5; ++i) {
      floors.push_back(register_module("floor" + std::to_string(i), Floor(20 + 37 * i, shift)));
    }
    sometimes = register_parameter("sometimes", torch::zeros({1500}));
    const torch::NoGradGuard no_grad;
    for (auto& p : parameters()) {
      const auto index = torch::arange(p.numel(), torch::kDouble) + 1 + 100 * seed;
      p.copy_((index.sin() * 0.1).view(p.sizes()));
    }
    for (auto& p : floors[2]->widen->parameters()) p.set_requires_grad(false);
    for (auto& p : floors[2]->narrow->parameters()) p.set_requires_grad(false);
    floors[0]->narrow->bias.set_requires_grad(false);
  }
  at::Tensor forward(const at::Tensor& input) {
    at::Tensor x = first(input);
    for (Floor& floor : floors) {
      x = by_unit ? unit(floor)(x) : floor(x);
      if (stops_early) return x;
    }
    return uses_all ? x * sometimes.sum().cos() : x;
  }
  at::Tensor loss(int step, int64_t begin, int64_t end) {
    uses_all = step % 3 == 1;
    const at::Tensor x = test_net::rows(step, begin, end).to(torch::kFloat);
    return (by_unit ? unit(*this)(x) : forward(x)).square().mean();
  }
  /// A forward that ends after one floor, while the next ones are on their way.
  void look(int step) {
    const torch::NoGradGuard no_grad;
    stops_early = true;
    loss(step, 0, 2);
    stops_early = false;
  }
  test_net::Values values() {
    test_net::Values values;
    for (const auto& p : parameters()) values.push_back(p.detach().clone());
    return values;
  }

  bool by_unit;
  bool uses_all = false;
  bool stops_early = false;
  torch::nn::Linear first = register_module("first", torch::nn::Linear(3, 24));
  std::vector<Floor> floors;
  at::Tensor sometimes;
};

struct OffloadWay {
  const char* name;
  int ranks = 2;
  bool parameters = true, gradients = true;
  FullyShardOptions options = {};
  int micro_batches = 1;
  bool accumulates = false;
  bool scales = false;
  bool hybrid = false;
  bool secondary = false;
};

void PrintTo(const OffloadWay& way, std::ostream* out) { *out << way.name; }

FullyShardOptions options_of(const OffloadWay& way, world::World& world, mesh::Mesh* mesh) {
  FullyShardOptions options = way.options;
  options.units = units_of_type<FloorImpl>();
  options.sharding.share_memory = false;
  if (way.secondary) {
    options.reshard_after_forward_to =
        world.group().split(world.rank() / 2, world.rank(), "secondary");
  }
  if (mesh != nullptr) {
    options.strategy = ShardingStrategy::kHybridShard;
    options.sharding.replicas = (*mesh)["dp"];
    options.sharding.everyone = world.group();
  }
  return options;
}

void micro_batches(Tower& net, Sharded& sharded, const OffloadWay& way, int step, int rank,
                   const std::function<at::Tensor(at::Tensor)>& scale) {
  if (way.options.sharding.num_grains > 0) {
    for (int64_t grain = sharded.grains().begin; grain < sharded.grains().end; ++grain) {
      sharded.grain(grain);
      net.loss(step, grain, grain + 1).backward();
    }
    return;
  }
  for (int micro = 0; micro < way.micro_batches; ++micro) {
    std::unique_ptr<Sharded::Accumulation> guard;
    if (way.accumulates && micro + 1 < way.micro_batches) {
      guard.reset(new Sharded::Accumulation(sharded.accumulate()));
    }
    if (way.options.sharding.average == Average::kWeighted) {
      sharded.set_weight(1 + rank + micro);
    }
    const int64_t begin = rank * 8 + micro * 2;
    scale(net.loss(step + micro, begin, begin + 2)).backward();
  }
}

std::unique_ptr<FlatOptimizer> adamw_of(FlatPart part, const SumOverParts& /*sum*/) {
  return flat_adamw(std::move(part));
}

/// The values after six steps, and the norms of the gradients.
test_net::Values train(world::World& world, const OffloadWay& way, const fs::path& folder) {
  Tower net(world.rank(), way.options.calls == UnitCalls::kExplicit);
  std::optional<mesh::Mesh> mesh;
  if (way.hybrid) mesh.emplace(world.mesh({{"dp", 2}, {"fsdp", way.ranks / 2}}));
  auto options = options_of(way, world, mesh ? &*mesh : nullptr);
  if (!folder.empty()) {
    options.sharding.offload =
        ShardOffload{.parameters = way.parameters, .gradients = way.gradients, .folder = folder};
  }
  const comm::Group group = mesh ? (*mesh)["fsdp"] : world.group();
  auto sharded = fully_shard(net, group, options);
  std::unique_ptr<FlatOptimizer> optimizer;
  if (folder.empty()) {
    optimizer = optimizer_of_parts(adamw_of, sharded.flat_parts());
  } else {
    optimizer =
        offloaded(adamw_of, {.folder = folder, .piece_elements = 4096}, sharded.flat_parts());
  }
  LossScaler scaler(world.group(), {.initial = 1024});
  const auto scale = [&](at::Tensor loss) { return way.scales ? scaler.scale(loss) : loss; };
  test_net::Values values;
  for (int step = 0; step < 6; ++step) {
    sharded.zero_grad();
    micro_batches(net, sharded, way, step, world.rank(), scale);
    const auto each = [&](const auto& visit) { sharded.for_each_gradient(visit); };
    if (way.scales) {
      EXPECT_TRUE(scaler.unscale_each(each));
    }
    values.push_back(torch::full({1}, sharded.clip_grad_norm(.05), torch::kDouble));
    net.look(step);  // what is read ahead changes before it is used
    sharded.step([&] { optimizer->step(1e-2, 1); });
  }
  const auto full = sharded.full_parameters();
  for (const at::Tensor& value : net.values()) values.push_back(value);
  return values;
}

class OffloadedShardsBits : public testing::TestWithParam<OffloadWay> {};

TEST_P(OffloadedShardsBits, SixStepsHaveTheBitsOfMemory) {
  const test::TemporaryFolder folder;
  const OffloadWay& way = GetParam();
  test::run_ranks(way.ranks, [&](world::World& world) {
    const test_net::Values expected = train(world, way, {});
    EXPECT_TRUE(test_net::same_bits(train(world, way, folder.path()), expected));
    EXPECT_TRUE(fs::is_empty(folder.path()));
  });
}

OffloadWay with(OffloadWay way, const std::function<void(ShardingOptions&)>& set) {
  set(way.options.sharding);
  return way;
}

INSTANTIATE_TEST_SUITE_P(
    Ways, OffloadedShardsBits,
    testing::Values(
        OffloadWay{"both1", 1}, OffloadWay{"both2", 2}, OffloadWay{"both3", 3},
        OffloadWay{"both4", 4}, OffloadWay{"parameters", 2, true, false},
        OffloadWay{"gradients", 2, false, true},
        OffloadWay{.name = "lens", .ranks = 2, .options = {.calls = UnitCalls::kLens}},
        OffloadWay{.name = "reduced_thrice", .ranks = 2, .micro_batches = 3},
        OffloadWay{.name = "accumulated", .ranks = 3, .micro_batches = 3, .accumulates = true},
        OffloadWay{.name = "scaled", .ranks = 2, .scales = true},
        OffloadWay{.name = "hybrid", .ranks = 4, .micro_batches = 2, .hybrid = true},
        OffloadWay{
            .name = "grad_op", .ranks = 2, .options = {.strategy = ShardingStrategy::kShardGradOp}},
        OffloadWay{.name = "secondary", .ranks = 4, .secondary = true},
        with({.name = "stable", .ranks = 3, .gradients = false},
             [](ShardingOptions& options) { options.num_grains = 7; }),
        with({.name = "one_in_flight", .ranks = 2},
             [](ShardingOptions& options) { options.max_units_in_flight = 1; }),
        with({.name = "four_in_flight", .ranks = 2},
             [](ShardingOptions& options) { options.max_units_in_flight = 4; }),
        with({.name = "mixed", .ranks = 2, .micro_batches = 2},
             [](ShardingOptions& options) {
               options.precision = {.param_dtype = torch::kBFloat16, .reduce_dtype = torch::kFloat};
             }),
        with({.name = "all_bfloat16", .ranks = 2},
             [](ShardingOptions& options) {
               options.precision = {.param_dtype = torch::kBFloat16};
             }),
        with({.name = "weighted", .ranks = 3, .micro_batches = 2},
             [](ShardingOptions& options) { options.average = Average::kWeighted; })),
    [](const auto& info) { return info.param.name; });

TEST(OffloadedShards, WithoutSharedMemoryOfParametersGradientsMayGo) {
  const test::TemporaryFolder folder;
  test::run_ranks(2, [&](world::World& world) {
    std::vector<test_net::Values> found;
    for (const bool in_file : {false, true}) {
      test_net::Net net(torch::kFloat);
      ShardOptimizerOptions options{.whole_gradients = WholeGradients::kFreed, .unit_bytes = 9000};
      if (in_file) {
        options.sharding.offload = ShardOffload{.parameters = false, .folder = folder.path()};
      }
      auto sharded = shard_optimizer(net, world.group(), options);
      auto optimizer = offloaded(adamw_of, {.folder = folder.path()}, sharded.flat_parts());
      for (int step = 0; step < 3; ++step) {
        sharded.zero_grad();
        test_net::mean_loss(net, step, world.rank() * 6, world.rank() * 6 + 6).backward();
        sharded.step([&] { optimizer->step(1e-2, 1); });
      }
      found.push_back(test_net::values_of(net));
    }
    EXPECT_TRUE(test_net::same_bits(found[0], found[1]));
  });
}

TEST(OffloadedShards, ParametersCanBeReadWrittenAndMomentsGathered) {
  const test::TemporaryFolder folder;
  test::run_ranks(2, [&](world::World& world) {
    Tower net, other(7);
    FullyShardOptions options{.units = units_of_type<FloorImpl>()};
    options.sharding.share_memory = false;
    options.sharding.offload = ShardOffload{.folder = folder.path()};
    auto sharded = fully_shard(net, world.group(), options);
    auto optimizer = offloaded(adamw_of, {.folder = folder.path()}, sharded.flat_parts());
    {
      const auto full = sharded.full_parameters();
      const torch::NoGradGuard no_grad;
      const auto theirs = other.named_parameters();
      for (const auto& item : net.named_parameters()) item.value().copy_(theirs[item.key()]);
    }
    {
      const auto full = sharded.full_parameters();
      EXPECT_TRUE(test_net::same_bits(net.values(), other.values()));
    }
    net.loss(1, 0, 4).backward();
    sharded.step([&] { optimizer->step(1e-2, 1); });
    const auto moments = gather_values(sharded, optimizer->values("first_moment"));
    for (const auto& entry : moments) EXPECT_GT(entry.tensor.abs().max().item<float>(), 0);
    EXPECT_EQ(scatter_values(sharded, moments).size(), optimizer->values("first_moment").size());
  });
}

TEST(OffloadedShards, ADeferredModuleComputesItsValuesIntoTheFile) {
  const test::TemporaryFolder folder;
  test::run_ranks(2, [&](world::World& world) {
    std::vector<test_net::Values> found;
    for (const bool in_file : {false, true}) {
      const auto built = lens::deferred([] {
        return Sequential(torch::nn::Linear(70, 61), torch::nn::Tanh(), torch::nn::Linear(61, 9));
      });
      FullyShardOptions options;
      options.sharding.share_memory = false;
      if (in_file) options.sharding.offload = ShardOffload{.folder = folder.path()};
      auto sharded = fully_shard(built, world.group(), options);
      const auto full = sharded.full_parameters();
      test_net::Values& values = found.emplace_back();
      for (const auto& p : built.module->parameters()) values.push_back(p.detach().clone());
    }
    EXPECT_TRUE(test_net::same_bits(found[0], found[1]));
  });
}

/// What a rank holds after steps with so many units, and the most of its heap.
struct Held {
  int64_t in_private = 0, in_heap = 0;
};

Held held_with(int64_t num_units, const fs::path& folder) {
  Held held;
  test::run_ranks(1, [&](world::World& world) {
    constexpr int64_t kWidth = 400;
    Sequential net;
    for (int64_t i = 0; i < num_units; ++i) net->push_back(torch::nn::Linear(kWidth, kWidth));
    FullyShardOptions options;
    options.sharding.share_memory = false;
    options.sharding.offload = ShardOffload{.folder = folder};
    auto sharded = fully_shard(*net, world.group(), options);
    auto optimizer =
        offloaded(adamw_of, {.folder = folder, .piece_elements = 1 << 16}, sharded.flat_parts());
    for (int step = 0; step < 3; ++step) {
      sharded.zero_grad();
      net->forward(torch::ones({2, kWidth})).sum().backward();
      sharded.clip_grad_norm(1);
      sharded.step([&] { optimizer->step(1e-3, 1); });
    }
    held = {test_disk::private_bytes(), static_cast<int64_t>(world.heap().peak_bytes())};
    EXPECT_EQ(world.heap().usage()["parameter shards"], 0u);
    EXPECT_EQ(world.heap().usage()["gradient shards"], 0u);
    EXPECT_THAT(describe(sharded), testing::HasSubstr("in a file, "));
  });
  return held;
}

TEST(OffloadedShards, MemoryDoesNotGrowWithTheNumberOfUnits) {
  const test::TemporaryFolder folder;
  ::mallopt(M_MMAP_THRESHOLD, 1 << 18);  // else freed tensors may stay with the allocator
  held_with(6, folder.path());           // what libtorch keeps for itself
  const Held few = held_with(6, folder.path()), many = held_with(24, folder.path());
  EXPECT_EQ(many.in_heap, few.in_heap);
  // 18 more units of 16 bytes per parameter are 46 MB.
  EXPECT_LT(many.in_private, few.in_private + (8 << 20));
}

TEST(OffloadedShards, WhatCannotBeIsRefusedWithAWayOut) {
  const test::TemporaryFolder folder;
  const ShardOffload all{.folder = folder.path()};
  test::run_ranks(1, [&](world::World& world) {
    const auto refused = [&](const ShardingOptions& sharding) {
      test_net::Net net(torch::kFloat);
      return test_net::refusal([&] { fully_shard(net, world.group(), {.sharding = sharding}); });
    };
    const auto has = [](const char* text) { return testing::HasSubstr(text); };
    EXPECT_THAT(refused({.offload = all}), has("set share_memory = false"));
    EXPECT_THAT(refused({.share_memory = false, .num_grains = 4, .offload = all}),
                has("offload.gradients = false"));
    EXPECT_THAT(
        refused({.share_memory = false, .offload = ShardOffload{.folder = folder.path() / "none"}}),
        AllOf(has("fully_shard: "), has((folder.path() / "none").c_str())));
    EXPECT_THAT(refused({.share_memory = false,
                         .offload = ShardOffload{.folder = folder.path(), .num_windows = 1}}),
                has("at least 2"));
    EXPECT_THAT(
        refused({.share_memory = false, .offload = ShardOffload{false, false, folder.path()}}),
        has("leave `offload` empty"));
    test_net::Net net(torch::kFloat);
    EXPECT_THAT(test_net::refusal(
                    [&] { shard_optimizer(net, world.group(), {.sharding = {.offload = all}}); }),
                has("parameters lie"));
  });
}

TEST(OffloadedShards, ARankWithoutAFileIsNamedToTheOthers) {
  const test::TemporaryFolder folder;
  test::run_ranks(2, [&](world::World& world) {
    test_net::Net net(torch::kFloat);
    const fs::path own = world.rank() == 0 ? folder.path() : folder.path() / "none";
    const ShardingOptions sharding{.share_memory = false, .offload = ShardOffload{.folder = own}};
    EXPECT_THAT(test_net::refusal([&] { fully_shard(net, world.group(), {.sharding = sharding}); }),
                testing::HasSubstr(world.rank() == 0 ? "rank 1 of group" : "No such file"));
    test_net::Net untouched(torch::kFloat);
    EXPECT_TRUE(test_net::same_bits(test_net::values_of(net), test_net::values_of(untouched)));
  });
}

TEST(OffloadedShards, BadUseIsNamed) {
  const test::TemporaryFolder folder;
  test::run_ranks(2, [&](world::World& world) {
    test_net::Net net(torch::kFloat);
    FullyShardOptions options{.calls = UnitCalls::kLens};
    options.sharding.share_memory = false;
    options.sharding.offload = ShardOffload{.folder = folder.path()};
    auto sharded = fully_shard(net, world.group(), options);
    const auto has = [](const char* text) { return testing::HasSubstr(text); };
    EXPECT_THAT(test_net::refusal([&] { sharded.parameters(); }), has("offloaded() of flat_parts"));
    EXPECT_THAT(test_net::refusal([&] { sharded.shards(); }), has("shards: the parameters"));
    const auto part = sharded.flat_parts()[0];
    EXPECT_THAT(test_net::refusal([&] { flat_adamw(part); }), has("give the optimizer to offload"));
    EXPECT_THAT(test_net::refusal([&] { part.parameters.clone(); }), has("lies in a file"));
    auto optimizer = offloaded(adamw_of, {.folder = folder.path()}, sharded.flat_parts());
    test_net::mean_loss(net, 0, 0, 4).backward();
    EXPECT_THAT(test_net::refusal([&] { optimizer->step(1, 1); }), has("within the handle's step"));
    sharded.step([&] { optimizer->step(1e-2, 1); });
  });
}

TEST(OffloadedShards, ACutFileAndASlowDiskAreNamed) {
  const test::TemporaryFolder folder;
  test::run_ranks(1, [&](world::World& world) {
    const auto train_with = [&](std::chrono::nanoseconds timeout, bool cut) {
      test_net::Net net(torch::kFloat);
      FullyShardOptions options{.calls = UnitCalls::kLens};
      options.sharding.share_memory = false;
      options.sharding.offload = ShardOffload{
          .folder = folder.path(), .timeout = timeout, .engine = base::ScratchEngine::kThread};
      auto sharded = fully_shard(net, world.group(), options);
      for (int step = 0; step < 50; ++step) {
        test_net::mean_loss(net, step, 0, 4).backward();
        if (cut) test_disk::cut_files_of(folder.path(), 0);
      }
    };
    EXPECT_THAT(test_net::refusal([&] { train_with(std::chrono::seconds(60), true); }),
                AllOf(testing::HasSubstr("fully_shard: scratch file in " + folder.path().string()),
                      testing::HasSubstr("somebody has cut the file")));
    EXPECT_THAT(test_net::refusal([&] { train_with(std::chrono::nanoseconds(1), false); }),
                testing::HasSubstr("the disk is too slow or hangs"));
  });
}

}  // namespace
}  // namespace hanji::parallel::offloaded_shards_test
