// Modules that are sharded before any rank has held them.
#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <gmock/gmock.h>
#include <torch/nn/init.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adamw.h>
#include <torch/types.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "hanji/comm/heap.h"
#include "hanji/parallel/ddp/data_parallel.h"
#include "hanji/parallel/fsdp/fully_shard.h"
#include "hanji/parallel/fsdp/shard_optimizer.h"
#include "hanji/parallel/server/parameter_server.h"
#include "hanji/parallel/test_net.h"
#include "hanji/test/temporary_folder.h"

namespace hanji::parallel {
namespace {

namespace deferred_modules {

using lens::deferred;
using test::run_ranks;
using test_net::refusal;
using test_net::Values;
using testing::AllOf;
using testing::HasSubstr;

struct BlockImpl : torch::nn::Module {
  at::Tensor forward(const at::Tensor& x) { return norm(x + narrow(torch::tanh(widen(x)))); }
  torch::nn::Linear widen = register_module("widen", torch::nn::Linear(16, 41));
  torch::nn::Linear narrow = register_module("narrow", torch::nn::Linear(41, 16));
  torch::nn::BatchNorm1d norm = register_module("norm", torch::nn::BatchNorm1d(16));
};
TORCH_MODULE(Block);

/// A table whose values are computed for the whole tensor, ties, buffers, what is frozen, another dtype, a matrix that
/// mixes its elements.
struct TowerImpl : torch::nn::Module {
  TowerImpl() {
    const at::NoGradGuard no_grad;
    torch::nn::init::orthogonal_(turn);
    blocks[1]->as<BlockImpl>()->widen->weight.set_requires_grad(false);
  }
  at::Tensor forward(const at::Tensor& tokens) {
    at::Tensor x = table(tokens).mm(turn);
    for (const auto& block : *blocks) x = block->as<BlockImpl>()->forward(x);
    return x.mm(tied.t()) * scale.to(at::kFloat);
  }
  torch::nn::Embedding table = register_module(
      "table", torch::nn::Embedding(torch::nn::EmbeddingOptions(37, 16).padding_idx(3)));
  at::Tensor turn = register_parameter("turn", torch::empty({16, 16}));
  torch::nn::ModuleList blocks =
      register_module("blocks", torch::nn::ModuleList(Block(), Block(), Block()));
  at::Tensor tied = register_parameter("tied", table->weight);
  at::Tensor scale = register_parameter("scale", torch::full({3}, 0.5, at::kDouble)[1], false);
};
TORCH_MODULE(Tower);

lens::Deferred<Tower> build(uint64_t seed = 5) {
  return deferred([] { return Tower(); }, {.seed = seed});
}

Values values_of(const torch::nn::Module& module) {
  Values values;
  for (const auto& p : module.parameters()) values.push_back(p.detach().clone());
  for (const auto& b : module.buffers()) values.push_back(b.clone());
  return values;
}

FullyShardOptions whole_options(bool share_memory) {
  FullyShardOptions options{.calls = UnitCalls::kLens};
  options.sharding.share_memory = share_memory;
  return options;
}

/// The strategies that take a module of either kind; told what was built, or a module with memory.
struct Way {
  std::string name;
  std::function<Sharded(const lens::Deferred<Tower>&, const comm::Group&)> of_deferred;
  std::function<Sharded(torch::nn::Module&, const comm::Group&)> of_module;
};

template <class Options, class Shard>
Way way(const std::string& name, const Options& options, const Shard& shard) {
  return {name, [=](const auto& built, const auto& group) { return shard(built, group, options); },
          [=](auto& module, const auto& group) { return shard(module, group, options); }};
}

std::vector<Way> ways() {
  const auto fully = [](auto&&... all) { return fully_shard(all...); };
  const auto optimizer = [](auto&&... all) { return shard_optimizer(all...); };
  ShardOptimizerOptions apart{.unit_bytes = 4096};
  apart.sharding.share_memory = false;
  return {way("once on the host", whole_options(true), fully),
          way("gathered", whole_options(false), fully),
          way("optimizer, once on the host", ShardOptimizerOptions{}, optimizer),
          way("optimizer, replicated", apart, optimizer)};
}

TEST(DeferredModules, ShardsOfAnyRanksAreWhatOneProcessMakes) {
  const Values expected = values_of(*build().materialise());
  for (const int ranks : {1, 2, 3, 4}) {
    run_ranks(ranks, [&](world::World& world) {
      for (const Way& way : ways()) {
        auto built = build();
        auto sharded = way.of_deferred(built, world.group());
        for (const auto& buffer : built.module->buffers()) EXPECT_FALSE(buffer.is_meta());
        const auto full = sharded.full_parameters();
        EXPECT_TRUE(test_net::same_bits(values_of(*built.module), expected))
            << way.name << " on " << ranks << " ranks";
      }
    });
  }
}

TEST(DeferredModules, ShardsThatLieInAFileAreWhatOneProcessMakes) {
  const Values expected = values_of(*build().materialise());
  const test::TemporaryFolder folder;
  run_ranks(3, [&](world::World& world) {
    auto options = whole_options(/*share_memory=*/false);
    options.sharding.offload = {.folder = folder.path()};
    auto built = build();
    auto sharded = fully_shard(built, world.group(), options);
    const auto full = sharded.full_parameters();
    EXPECT_TRUE(test_net::same_bits(values_of(*built.module), expected));
  });
}

TEST(DeferredModules, EveryReplicaOfAHybridHasThem) {
  const Values expected = values_of(*build().materialise());
  run_ranks(4, [&](world::World& world) {
    const auto mesh = world.mesh({{"dp", 2}, {"fsdp", 2}});
    FullyShardOptions options{.strategy = ShardingStrategy::kHybridShard,
                              .calls = UnitCalls::kLens};
    options.sharding.replicas = mesh["dp"];
    auto built = build();
    auto sharded = fully_shard(built, mesh["fsdp"], options);
    const auto full = sharded.full_parameters();
    EXPECT_TRUE(test_net::same_bits(values_of(*built.module), expected));
  });
}

Values train(Tower net, Sharded sharded, int rank) {
  torch::optim::AdamW optimizer(sharded.parameters(), 1e-2);
  for (int step = 0; step < test_net::kSteps; ++step) {
    const auto tokens = (at::arange(6) * 7 + 5 * step + 11 * rank) % 37;
    optimizer.zero_grad();
    net->forward(tokens).square().mean().backward();
    sharded.step(optimizer);
  }
  const auto full = sharded.full_parameters();
  return values_of(*net);
}

TEST(DeferredModules, TwentyStepsAreThoseOfAModuleBuiltWhole) {
  run_ranks(3, [&](world::World& world) {
    for (const Way& way : ways()) {
      auto whole = build().materialise();
      const Values expected = train(whole, way.of_module(*whole, world.group()), world.rank());
      auto built = build();
      const Values own = train(built.module, way.of_deferred(built, world.group()), world.rank());
      EXPECT_TRUE(test_net::same_bits(own, expected)) << way.name;
    }
  });
}

/// What this thread takes from libtorch's allocator.
class PrivatePeak : public c10::MemoryReportingInfoBase {
 public:
  void reportMemoryUsage(void*, int64_t size, size_t, size_t, c10::Device) override {
    now_ += size;
    peak = std::max(peak, now_);
  }
  bool memoryProfilingEnabled() const override { return true; }
  int64_t peak = 0;

 private:
  int64_t now_ = 0;
};

/// 21 MB of parameters in units of 2.1 MB.
auto build_wide() {
  return deferred([] {
    torch::nn::Sequential all;
    for (int i = 0; i < 10; ++i) all->push_back(torch::nn::Linear(724, 724));
    return all;
  });
}

TEST(DeferredModules, ARankHoldsItsShardsAndNeverAUnit) {
  constexpr int kRanks = 4;
  constexpr int64_t kElements = 10 * (724 * 724 + 724), kCut = 1024;
  run_ranks(kRanks, [&](world::World& world) {
    const auto counter = std::make_shared<PrivatePeak>();
    const c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, counter);
    const auto built = build_wide();
    auto sharded = fully_shard(built, world.group(), whole_options(/*share_memory=*/false));
    EXPECT_LT(counter->peak, 1 << 20) << "half a unit, for drawing some numbers at a time";
    const auto shards = static_cast<int64_t>(world.group().heap().usage()["parameter shards"]);
    EXPECT_LE(shards, 4 * (kElements / kRanks + 10 * kCut));
    const int64_t heap_peak = static_cast<int64_t>(world.group().heap().peak_bytes());
    EXPECT_LE(heap_peak, 2 * shards + (1 << 20)) << "parameters and their gradients";
    { const auto full = sharded.full_parameters(); }
    EXPECT_GE(static_cast<int64_t>(world.group().heap().peak_bytes()), 4 * kElements)
        << "this way whole parameters would have been seen";
  });
}

Way fully_sharded() { return ways()[1]; }

TEST(DeferredModules, OtherSeedsAndConstructionsAreToldOnAllRanks) {
  run_ranks(3, [](world::World& world) {
    for (const Way& way : ways()) {
      auto built = build(world.rank() == 1 ? 6 : 5);
      EXPECT_THAT(
          refusal([&] { way.of_deferred(built, world.group()); }),
          AllOf(HasSubstr("turn (deferred, seed " + std::string(world.rank() == 1 ? "6" : "5")),
                HasSubstr("ranks 1")))
          << way.name;
    }
    const auto drawn = deferred([&] {
      Tower tower;
      const at::NoGradGuard no_grad;
      if (world.rank() == 2) tower->turn.mul_(2);
      return tower;
    });
    EXPECT_THAT(refusal([&] { fully_sharded().of_deferred(drawn, world.group()); }),
                AllOf(HasSubstr("turn (deferred, seed 1"), HasSubstr("ranks 2"),
                      testing::Not(HasSubstr("tied"))));
    auto built = build();
    if (world.rank() == 0) built.materialise();
    EXPECT_THAT(refusal([&] { fully_sharded().of_deferred(built, world.group()); }),
                AllOf(HasSubstr("turn has memory"), HasSubstr("give the module alone")));
  });
}

TEST(DeferredModules, WithoutARecipeTheyAreRefusedByName) {
  run_ranks(2, [](world::World& world) {
    const auto& group = world.group();
    const auto no_values = AllOf(HasSubstr("turn has no memory and no values"),
                                 HasSubstr("hanji::deferred()"), HasSubstr("blocks.0.widen.bias"));
    for (const Way& way : ways()) {
      auto built = build();
      if (world.rank() == 1) built.materialise();
      EXPECT_THAT(refusal([&] { way.of_module(*built.module, group); }), no_values) << way.name;
    }
    EXPECT_THAT(refusal([&] { data_parallel(*build().module, group); }), no_values);
    EXPECT_THAT(refusal([&] { parameter_server(*build().module, group); }), no_values);
    auto late = build();
    late.module->register_buffer("late", torch::zeros({2}, at::kMeta));
    EXPECT_THAT(refusal([&] { fully_shard(late, group, whole_options(true)); }),
                HasSubstr("late was not there when hanji::deferred() ended"));
    const auto resized = deferred([] {
      Tower tower;
      tower->register_parameter("grown", torch::ones({4}).resize_({8}));
      return tower;
    });
    EXPECT_THAT(refusal([&] { fully_shard(resized, group, whole_options(true)); }),
                AllOf(HasSubstr("grown"), HasSubstr("aten::resize_ cannot be repeated")));
  });
}

}  // namespace deferred_modules
}  // namespace
}  // namespace hanji::parallel
