#include "hanji/parallel/fsdp/fully_shard.h"

#include <gmock/gmock.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>

#include <chrono>
#include <thread>

#include "hanji/comm/all_reduce.h"
#include "hanji/comm/gloo/group.h"
#include "hanji/comm/heap.h"
#include "hanji/parallel/fsdp/description.h"
#include "hanji/parallel/fsdp/sequential.h"
#include "hanji/parallel/fsdp/shard_optimizer.h"
#include "hanji/parallel/fsdp/unit.h"
#include "hanji/parallel/fsdp/whole_values.h"
#include "hanji/parallel/test_net.h"

namespace hanji::parallel {
namespace {

using test::run_ranks;
using test_net::kTolerance;
using test_net::refusal;
using test_net::same_bits;
using test_net::Values;
using testing::HasSubstr;

struct BlockImpl : torch::nn::Module {
  explicit BlockImpl(const at::Tensor& shared) : shift(register_parameter("shift", shared)) {}
  at::Tensor forward(const at::Tensor& x) { return x + narrow(torch::tanh(widen(x) + shift)); }
  torch::nn::Linear widen = register_module("widen", torch::nn::Linear(24, 83));
  torch::nn::Linear narrow = register_module("narrow", torch::nn::Linear(83, 24));
  at::Tensor shift;
};
TORCH_MODULE(Block);

/// One tensor that all blocks share, one block that is used twice, one that is frozen, a frozen
/// bias, a parameter nobody uses, a buffer.
struct Deep : torch::nn::Module {
  explicit Deep(at::ScalarType dtype, UnitCalls calls = UnitCalls::kExplicit, int seed = 0)
      : by_unit(calls == UnitCalls::kExplicit) {
    const at::Tensor shift = torch::zeros({83});
    for (int i = 0; i < 4; ++i) blocks.push_back(Block(shift));
    for (int i = 0; i < 4; ++i) register_module("block" + std::to_string(i), blocks[i]);
    register_parameter("unused", torch::zeros({3000}));
    to(dtype);
    const torch::NoGradGuard no_grad;
    for (auto& p : parameters()) {
      const auto index = torch::arange(p.numel(), torch::kDouble) + 1 + 100 * seed;
      p.copy_((index.sin() * 0.1).view(p.sizes()));
    }
    scale = register_buffer("scale", torch::full({1}, 1.0 + seed, at::TensorOptions(dtype)));
    for (auto& p : blocks[1]->widen->parameters()) p.set_requires_grad(false);
    for (auto& p : blocks[1]->narrow->parameters()) p.set_requires_grad(false);
    blocks[0]->narrow->bias.set_requires_grad(false);
  }
  at::Tensor run(Block& block, const at::Tensor& x) { return by_unit ? unit(block)(x) : block(x); }
  at::Tensor forward(const at::Tensor& input) {
    at::Tensor x = first(input) * scale;
    for (Block& block : blocks) x = run(block, x);
    return last(run(blocks[2], x));
  }
  at::Tensor operator()(const at::Tensor& x) { return by_unit ? unit(*this)(x) : forward(x); }
  std::vector<at::Tensor> learning() {
    std::vector<at::Tensor> found;
    for (const auto& entry : learning_parameters(*this)) found.push_back(entry.tensor);
    return found;
  }

  bool by_unit;
  torch::nn::Linear first = register_module("first", torch::nn::Linear(3, 24));
  std::vector<Block> blocks;
  torch::nn::Linear last = register_module("last", torch::nn::Linear(24, 5));
  at::Tensor scale;
};

at::Tensor mean_loss(Deep& net, int step, int64_t begin, int64_t end) {
  return net(test_net::rows(step, begin, end).to(net.scale.scalar_type())).square().mean();
}

Values values_of(Deep& net) {
  Values values;
  for (const auto& p : net.parameters()) values.push_back(p.detach().clone());
  return values;
}

constexpr int kSteps = 20;

Values train_alone(int steps, int64_t batch) {
  Deep net(torch::kDouble);
  torch::optim::AdamW optimizer(net.learning(), 1e-2);
  for (int step = 0; step < steps; ++step) {
    optimizer.zero_grad();
    mean_loss(net, step, 0, batch).backward();
    optimizer.step();
  }
  return values_of(net);
}

struct Kind {
  const char* name;
  int ranks = 2;
  bool share_memory = true;
  ShardingStrategy strategy = ShardingStrategy::kFullShard;
  UnitCalls calls = UnitCalls::kExplicit;
  int in_flight = 2;
};

FullyShardOptions options_of(const Kind& kind) {
  FullyShardOptions options{
      .strategy = kind.strategy, .calls = kind.calls, .units = units_of_type<BlockImpl>()};
  options.sharding.share_memory = kind.share_memory;
  options.sharding.max_units_in_flight = kind.in_flight;
  return options;
}

class FullyShard : public testing::TestWithParam<Kind> {};

TEST_P(FullyShard, TwentyStepsAreThoseOfOneProcess) {
  const Kind kind = GetParam();
  const Values expected = train_alone(kSteps, 12);
  run_ranks(kind.ranks, [&](world::World& world) {
    Deep net(torch::kDouble, kind.calls, world.rank());
    auto sharded = fully_shard(net, world.group(), options_of(kind));
    torch::optim::AdamW optimizer(sharded.parameters(), 1e-2);
    const int64_t begin = world.rank() * 12 / kind.ranks,
                  end = (world.rank() + 1) * 12 / kind.ranks;
    for (int step = 0; step < kSteps; ++step) {
      optimizer.zero_grad();
      const auto delay = step * 7919 * (world.rank() + 1) % 997;
      std::this_thread::sleep_for(std::chrono::microseconds(delay));
      mean_loss(net, step, begin, end).backward();
      sharded.step(optimizer);
    }
    const auto full = sharded.full_parameters();
    EXPECT_LT(test_net::largest_difference(values_of(net), expected), kTolerance);
  });
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, FullyShard,
    testing::Values(
        Kind{"shared2", 2}, Kind{"shared3", 3}, Kind{"gathered2", 2, false},
        Kind{"gathered3", 3, false, ShardingStrategy::kFullShard, UnitCalls::kExplicit, 1},
        Kind{"gathered4", 4, false, ShardingStrategy::kFullShard, UnitCalls::kExplicit, 3},
        Kind{"grad_op", 2, false, ShardingStrategy::kShardGradOp},
        Kind{"no_shard", 3, true, ShardingStrategy::kNoShard},
        Kind{"lens_shared", 2, true, ShardingStrategy::kFullShard, UnitCalls::kLens},
        Kind{"lens_gathered", 3, false, ShardingStrategy::kFullShard, UnitCalls::kLens},
        Kind{"lens_grad_op", 2, false, ShardingStrategy::kShardGradOp, UnitCalls::kLens}),
    [](const auto& info) { return info.param.name; });

at::Tensor loss_of_grain(Deep& net, int step, int64_t grain) {
  const double scale = std::pow(10.0, static_cast<double>(grain % 5) - 2);
  return net(test_net::rows(step, grain, grain + 1).to(torch::kFloat)).square().sum() * scale;
}

/// Three steps in stable, however it is sharded.
Values train_stable(const comm::Group& group, FullyShardOptions options, int64_t num_grains = 5) {
  Deep net(torch::kFloat, options.calls);
  options.sharding.average = Average::kSum;
  options.sharding.num_grains = num_grains;
  auto sharded = fully_shard(net, group, options);
  torch::optim::AdamW optimizer(sharded.parameters(), 1e-2);
  for (int step = 0; step < 3; ++step) {
    for (int64_t grain = sharded.grains().begin; grain < sharded.grains().end; ++grain) {
      sharded.grain(grain);
      loss_of_grain(net, step, grain).backward();
    }
    sharded.step(optimizer);
  }
  const auto full = sharded.full_parameters();
  return values_of(net);
}

TEST(FullyShardStable, BitsDoNotDependOnRanksUnitsOrHowItIsSharded) {
  Values expected;
  run_ranks(1, [&](world::World& world) { expected = train_stable(world.group(), {}); });
  for (const int ranks : {2, 3, 4}) {
    run_ranks(ranks, [&](world::World& world) {
      for (const bool share : {true, false}) {
        for (const int64_t size : {24 * 83, 4000}) {
          FullyShardOptions options{.calls = UnitCalls::kLens, .units = units_of_size(size)};
          options.sharding.share_memory = share;
          EXPECT_TRUE(same_bits(train_stable(world.group(), options), expected))
              << ranks << " ranks, " << share << ", units of " << size;
        }
      }
      if (ranks != 4) return;
      const auto mesh = world.mesh({{"dp", 2}, {"fsdp", 2}});
      FullyShardOptions options{.strategy = ShardingStrategy::kHybridShard,
                                .units = units_of_type<BlockImpl>()};
      options.sharding.replicas = mesh["dp"];
      options.sharding.everyone = world.group();
      options.sharding.share_memory = false;
      EXPECT_TRUE(same_bits(train_stable(mesh["fsdp"], options), expected)) << "hybrid";
    });
  }
}

TEST(FullyShardStable, UnitsAreShardedAgainBetweenGrainsThatRanksShareEvenly) {
  Values expected;
  run_ranks(1, [&](world::World& world) { expected = train_stable(world.group(), {}, 6); });
  run_ranks(2, [&](world::World& world) {
    auto options = options_of({"", 2, false});
    EXPECT_TRUE(same_bits(train_stable(world.group(), options, 6), expected));
    options.sharding.owners = {{0, 5}, {5, 5}};
    EXPECT_THAT(refusal([&] { train_stable(world.group(), options); }), HasSubstr("owns no grain"));
  });
}

TEST(FullyShardHybrid, OfTwoAxesIsOneProcess) {
  const Values expected = train_alone(5, 12);
  run_ranks(4, [&](world::World& world) {
    const auto mesh = world.mesh({{"dp", 2}, {"fsdp", 2}});
    for (const bool share : {true, false}) {
      Deep net(torch::kDouble, UnitCalls::kExplicit, world.rank());
      FullyShardOptions options{.strategy = ShardingStrategy::kHybridShard,
                                .units = units_of_type<BlockImpl>()};
      options.sharding.replicas = mesh["dp"];
      options.sharding.share_memory = share;
      auto sharded = fully_shard(net, mesh["fsdp"], options);
      torch::optim::AdamW optimizer(sharded.parameters(), 1e-2);
      for (int step = 0; step < 5; ++step) {
        optimizer.zero_grad();
        mean_loss(net, step, world.rank() * 3, world.rank() * 3 + 3).backward();
        sharded.step(optimizer);
      }
      const auto full = sharded.full_parameters();
      EXPECT_LT(test_net::largest_difference(values_of(net), expected), kTolerance);
    }
  });
}

TEST(FullyShardAccumulation, BothWaysGiveTheSumOverMicroBatches) {
  Deep reference(torch::kDouble);
  (mean_loss(reference, 0, 0, 6) + mean_loss(reference, 0, 6, 12)).backward();
  torch::optim::SGD(reference.learning(), 1).step();
  run_ranks(2, [&](world::World& world) {
    for (const bool reduces : {false, true}) {
      Deep net(torch::kDouble);
      auto sharded = fully_shard(net, world.group(), options_of({"", 2, !reduces}));
      torch::optim::SGD optimizer(sharded.parameters(), 1);
      const int64_t begin = world.rank() * 3;
      if (reduces) {
        mean_loss(net, 0, begin, begin + 3).backward();
      } else {
        const auto guard = sharded.accumulate();
        mean_loss(net, 0, begin, begin + 3).backward();
      }
      mean_loss(net, 0, 6 + begin, 9 + begin).backward();
      sharded.step(optimizer);
      const auto full = sharded.full_parameters();
      EXPECT_LT(test_net::largest_difference(values_of(net), values_of(reference)), kTolerance);
    }
  });
}

TEST(FullyShardMemory, OnlyTheRootAndAFewUnitsAreWhole) {
  run_ranks(2, [](world::World& world) {
    Deep net(torch::kFloat);
    auto sharded = fully_shard(net, world.group(), options_of({"", 2, false}));
    const auto whole = [&] { return world.heap().usage()["unsharded units"]; };
    EXPECT_EQ(whole(), 0u);
    const at::Tensor loss = mean_loss(net, 0, 0, 4);
    const size_t root = whole();
    EXPECT_GT(root, 3000u * 4);
    EXPECT_LT(root, (3000u + 83 + 24 * 4 + 24 * 5 + 5 + 64 * 6) * 4) << "the blocks are freed";
    loss.backward();
    EXPECT_EQ(whole(), 0u);
    {
      const torch::NoGradGuard no_grad;
      mean_loss(net, 0, 0, 4);
      EXPECT_EQ(whole(), 0u) << "without a graph the root is freed too";
    }
    size_t peak = 0;
    for (int step = 0; step < 4; ++step) {
      mean_loss(net, step, 0, 4).backward();
      sharded.step([] {});
      if (step == 1) peak = world.heap().peak_bytes();
      if (step > 1) {
        EXPECT_EQ(world.heap().peak_bytes(), peak);
      }
    }
    EXPECT_THAT(describe(sharded), HasSubstr("memory is freed after"));
    EXPECT_THAT(describe(sharded), HasSubstr("unit block1: 4 parameters, 4091 elements of Float, "
                                             "frozen"));
  });
}

TEST(FullyShardMemory, AHostHoldsEverythingOnceAndTwoUnitsOfGradientsPerRank) {
  run_ranks(4, [](world::World& world) {
    constexpr int64_t kUnits = 8, kWidth = 200, kUnit = kWidth * kWidth + kWidth;
    Sequential net;
    for (int64_t i = 0; i < kUnits; ++i) net->push_back(torch::nn::Linear(kWidth, kWidth));
    auto sharded = fully_shard(*net, world.group());
    const torch::Tensor x = torch::ones({2, kWidth});
    for (int step = 0; step < 3; ++step) {
      net->forward(x).sum().backward();
      sharded.step([] {});
    }
    at::Tensor bytes = torch::full({1}, static_cast<int64_t>(world.heap().used_bytes()), at::kLong);
    comm::all_reduce(bytes, world.group()).wait();
    // Parameters once, gradients once, and what backward fills.
    const double expected = 4.0 * (2 * kUnits * kUnit + 4 * 2 * kUnit);
    EXPECT_LT(bytes.item<int64_t>(), 1.02 * expected);
    EXPECT_GT(bytes.item<int64_t>(), 0.98 * expected);
  });
}

TEST(FullyShardFull, ParametersCanBeReadWrittenAndLoaded) {
  run_ranks(2, [](world::World& world) {
    for (const bool share : {true, false}) {
      Deep net(torch::kFloat), other(torch::kFloat, UnitCalls::kExplicit, 7);
      other.scale.fill_(1);
      auto sharded = fully_shard(net, world.group(), options_of({"", 2, share}));
      {
        const auto full = sharded.full_parameters();
        const torch::NoGradGuard no_grad;
        const auto theirs = other.named_parameters();
        for (const auto& item : net.named_parameters()) item.value().copy_(theirs[item.key()]);
        const auto x = test_net::rows(0, 0, 2).to(torch::kFloat);
        EXPECT_TRUE(at::allclose(net.forward(x), other.forward(x))) << "outside any unit";
      }
      const auto x = test_net::rows(0, 0, 2).to(torch::kFloat);
      EXPECT_TRUE(at::allclose(net(x), other(x))) << "the shards hold what was written";
      const auto full = sharded.full_parameters();
      EXPECT_TRUE(same_bits(values_of(net), values_of(other)));
    }
  });
}

/// Steps [begin, end) in stable.
void run_steps(test_net::Net& net, Sharded& sharded, torch::optim::Optimizer& optimizer,
               const std::pair<int, int>& steps) {
  for (int step = steps.first; step < steps.second; ++step) {
    for (int64_t grain = sharded.grains().begin; grain < sharded.grains().end; ++grain) {
      sharded.grain(grain);
      test_net::loss_of_grain(net, step, grain).backward();
    }
    sharded.step(optimizer);
  }
}

TEST(FullyShardState, GoesOnUnderAnotherStrategyAndNumberOfRanksWithTheSameBits) {
  ShardingOptions stable{.average = Average::kSum, .num_grains = test_net::kGrains};
  test_net::Net saved(torch::kFloat);
  torch::optim::AdamW saved_optimizer(test_net::distinct(saved), 1e-2);
  run_ranks(2, [&](world::World& world) {
    test_net::Net net(torch::kFloat);
    auto sharded = shard_optimizer(net, world.group(), {.sharding = stable, .unit_bytes = 100});
    torch::optim::AdamW optimizer(sharded.parameters(), 1e-2);
    run_steps(net, sharded, optimizer, {0, 2});
    const auto full = sharded.full_parameters();
    torch::optim::AdamW whole(test_net::distinct(net), 1e-2);
    gather_state(sharded, optimizer, whole);
    torch::optim::SGD other(test_net::distinct(net), 1);
    EXPECT_THAT(refusal([&] { gather_state(sharded, optimizer, other); }), HasSubstr("of SGD"));
    if (world.rank() != 0) return;
    const torch::NoGradGuard no_grad;
    for (size_t i = 0; i < test_net::distinct(net).size(); ++i) {
      const at::Tensor from = test_net::distinct(net)[i];
      const at::Tensor to = test_net::distinct(saved)[i];
      to.copy_(from);
      saved_optimizer.state()[to.unsafeGetTensorImpl()] =
          whole.state().at(from.unsafeGetTensorImpl())->clone();
    }
  });
  run_ranks(3, [&](world::World& world) {
    test_net::Net net(torch::kFloat, 9);
    stable.share_memory = false;
    auto sharded = fully_shard(net, world.group(), {.sharding = stable, .calls = UnitCalls::kLens});
    torch::optim::AdamW optimizer(sharded.parameters(), 1e-2);
    {
      const auto full = sharded.full_parameters();
      torch::optim::AdamW whole(test_net::distinct(net), 1e-2);
      const torch::NoGradGuard no_grad;
      for (size_t i = 0; i < test_net::distinct(net).size(); ++i) {
        const at::Tensor from = test_net::distinct(saved)[i];
        const at::Tensor to = test_net::distinct(net)[i];
        to.copy_(from);
        whole.state()[to.unsafeGetTensorImpl()] =
            saved_optimizer.state().at(from.unsafeGetTensorImpl())->clone();
      }
      scatter_state(sharded, whole, optimizer);
    }
    run_steps(net, sharded, optimizer, {2, test_net::kStableSteps});
    const auto full = sharded.full_parameters();
    EXPECT_TRUE(same_bits(test_net::values_of(net), test_net::train_alone_stable()));
  });
}

TEST(FullyShardLifetime, OnOneHostTheParametersOutliveTheShards) {
  run_ranks(2, [](world::World& world) {
    Deep net(torch::kFloat);
    const Values before = values_of(net);
    { auto sharded = fully_shard(net, world.group(), options_of({"", 2})); }
    EXPECT_TRUE(same_bits(values_of(net), before));
    mean_loss(net, 0, 0, 4).backward();
    EXPECT_TRUE(net.first->weight.grad().defined()) << "and so do ordinary gradients";
  });
}

TEST(FullyShardCalls, ASequentialOfUnitsNeedsNoPolicy) {
  run_ranks(2, [](world::World& world) {
    Sequential net(torch::nn::Linear(3, 700), torch::nn::Tanh(), torch::nn::Linear(700, 2));
    const torch::NoGradGuard no_grad;
    for (auto& p : net->parameters()) p.fill_(0.25);
    const auto x = torch::ones({2, 3});
    const at::Tensor expected = net->forward(x);
    FullyShardOptions options;
    options.sharding.share_memory = false;
    auto sharded = fully_shard(*net, world.group(), options);
    EXPECT_THAT(describe(sharded), HasSubstr("unit 2: 2 parameters"));
    EXPECT_TRUE(at::equal(net->forward(x), expected));
  });
}

TEST(FullyShardCalls, AnExceptionInAForwardLeavesTheUnitSharded) {
  run_ranks(2, [](world::World& world) {
    Deep net(torch::kFloat);
    auto sharded = fully_shard(net, world.group(), options_of({"", 2, false}));
    EXPECT_THAT(refusal([&] { unit(net.blocks[0])(torch::ones({2, 5})); }), HasSubstr("shapes"));
    EXPECT_EQ(world.heap().usage()["unsharded units"], 0u);
    mean_loss(net, 0, 0, 4).backward();
  });
}

TEST(FullyShardEngines, MessagesBetweenHostsGiveTheSame) {
  if (!comm::gloo::available()) GTEST_SKIP() << "this libtorch has no Gloo";
  const Values expected = train_alone(3, 12);
  run_ranks(2, [&](world::World& world) {
    const comm::Group group = comm::gloo::make_group(world.group());
    Deep net(torch::kDouble, UnitCalls::kExplicit, world.rank());
    auto sharded = fully_shard(net, group, options_of({"", 2, true}));
    torch::optim::AdamW optimizer(sharded.parameters(), 1e-2);
    for (int step = 0; step < 3; ++step) {
      optimizer.zero_grad();
      mean_loss(net, step, world.rank() * 6, world.rank() * 6 + 6).backward();
      sharded.step(optimizer);
    }
    EXPECT_THAT(describe(sharded), HasSubstr("is gathered"));
    const auto full = sharded.full_parameters();
    EXPECT_LT(test_net::largest_difference(values_of(net), expected), kTolerance);
  });
}

TEST(FullyShardErrors, BadUseIsRefusedByTheParametersName) {
  run_ranks(2, [](world::World& world) {
    for (const bool share : {true, false}) {
      Deep net(torch::kFloat);
      auto sharded = fully_shard(net, world.group(), options_of({"", 2, share}));
      EXPECT_THAT(refusal([&] { fully_shard(net, world.group()); }),
                  HasSubstr("unused is sharded already"));
      EXPECT_THAT(refusal([&] { fully_shard(*net.blocks[3], world.group()); }),
                  HasSubstr("is sharded already, as part of a module that fully_shard()"));
      const auto x = torch::ones({2, 24});
      EXPECT_THAT(refusal([&] { net.blocks[3]->widen(x); }),
                  testing::AllOf(HasSubstr("block3.widen."), HasSubstr("hanji::unit")));
      const at::Tensor loss = mean_loss(net, 0, 0, 4);
      loss.backward();
      EXPECT_THAT(refusal([&] { loss.backward(); }), HasSubstr("second time"));
    }
  });
}

TEST(FullyShardErrors, ASecondBackwardNamesTheUnit) {
  run_ranks(2, [](world::World& world) {
    Sequential net(torch::nn::Linear(3, 8));
    auto sharded = fully_shard(*net, world.group());
    const at::Tensor output = net->forward(torch::ones({2, 3}));
    // Gradients that were not kept by a loss: nothing but the unit itself can refuse.
    output.backward(torch::ones({2, 8}));
    EXPECT_THAT(refusal([&] {
                  output.backward(torch::ones({2, 8}));
                }),
                testing::AllOf(HasSubstr("unit 0"), HasSubstr("0.weight")));
    const at::Tensor kept = net->forward(torch::ones({2, 3}));
    kept.backward(torch::ones({2, 8}), /*retain_graph=*/true);
    kept.backward(torch::ones({2, 8}));
  });
}

TEST(FullyShardErrors, ShapesThatDifferAndOptionsThatContradict) {
  run_ranks(2, [](world::World& world) {
    torch::nn::Linear odd(3, world.rank() == 0 ? 4 : 5);
    EXPECT_THAT(refusal([&] { fully_shard(*odd, world.group()); }), HasSubstr("weight"));
    torch::nn::Linear net(3, 4);
    EXPECT_THAT(
        refusal([&] { fully_shard(*net, world.group(), {.units = units_of_type<BlockImpl>()}); }),
        HasSubstr("finds no module"));
    EXPECT_THAT(refusal([&] {
                  fully_shard(*net, world.group(),
                              {.strategy = parse_sharding_strategy("HYBRID_SHARD")});
                }),
                HasSubstr("needs `replicas`"));
    EXPECT_THAT(refusal([] { parse_sharding_strategy("FULL"); }), HasSubstr("SHARD_GRAD_OP"));
  });
}

TEST(FullyShardErrors, ParametersOnTwoDevicesAreNamed) {
  run_ranks(1, [](world::World& world) {
    struct Two : torch::nn::Module {
      at::Tensor here = register_parameter("here", torch::ones({3}));
      at::Tensor there =
          register_parameter("there", torch::ones({3}, at::TensorOptions(torch::kMeta)));
    } two;
    EXPECT_THAT(
        refusal([&] { fully_shard(two, world.group()); }),
        testing::AllOf(HasSubstr("parameter there is on meta"), HasSubstr("here is on cpu")));
  });
}

}  // namespace
}  // namespace hanji::parallel
