// Modules that change after a strategy has taken them: what is frozen, thawed, new, or of another dtype.
#include <gmock/gmock.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "hanji/parallel/ddp/data_parallel.h"
#include "hanji/parallel/fsdp/fully_shard.h"
#include "hanji/parallel/fsdp/shard_optimizer.h"
#include "hanji/parallel/server/parameter_server.h"
#include "hanji/parallel/test_net.h"

namespace hanji::parallel {
namespace {

namespace changed_module {

using test::run_ranks;
using test_net::refusal;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

/// Values of its own on each rank; the adapter and a buffer do not learn.
struct Net : torch::nn::Module {
  explicit Net(int seed) {
    for (auto& p : adapter->parameters()) p.set_requires_grad(false);
    const torch::NoGradGuard no_grad;
    for (auto& p : parameters()) {
      p.copy_((torch::arange(p.numel(), torch::kDouble) + 1 + 100 * seed).sin().view(p.sizes()));
    }
    shift = register_buffer("shift", torch::full({1}, 1.0 + seed));
  }
  at::Tensor loss() {
    const at::Tensor x = torch::tanh(body(torch::ones({3, 2}) + shift));
    return head(x + adapter(x)).square().sum();
  }
  torch::nn::Linear body = register_module("body", torch::nn::Linear(2, 3));
  torch::nn::Linear adapter = register_module("adapter", torch::nn::Linear(3, 3));
  torch::nn::Linear head = register_module("head", torch::nn::Linear(3, 2));
  at::Tensor shift;
};

/// One training step around a backward.
using Step = std::function<void(const std::function<void()>& backward)>;

struct Strategy {
  std::string name;
  std::function<Step(Net&, const comm::Group&)> start;
  bool notifies_peers = true;  ///< Also of what changed on another rank.
  bool gathers = false;        ///< Parameters are whole only while they are computed with.
  bool warms = true;           ///< A step may be the last call.
};

Step replicated(Net& net, const comm::Group& group, const DataParallelOptions& options) {
  auto handle = std::make_shared<Replicas>(data_parallel(net, group, options));
  return [handle, &net, stable = options.num_grains > 0](const auto& backward) {
    if (stable) handle->grain(handle->grains().begin);
    net.zero_grad();
    backward();
    torch::optim::SGD(net.parameters(), 0.1).step();
  };
}

Step sharded(Sharded made) {
  auto handle = std::make_shared<Sharded>(std::move(made));
  return [handle](const auto& backward) {
    handle->zero_grad();
    backward();
    torch::optim::SGD optimizer(handle->parameters(), 0.1);
    handle->step(optimizer);
  };
}

Step fully_sharded(Net& net, const comm::Group& group, const ShardingOptions& sharding) {
  return sharded(fully_shard(net, group, {.sharding = sharding, .calls = UnitCalls::kLens}));
}

Step served(Net& net, const comm::Group& group, ServerTiming timing) {
  auto handle = std::make_shared<ParameterServer>(parameter_server(net, group, {.timing = timing}));
  return [handle, &net](const auto& backward) {
    net.zero_grad();
    backward();
    handle->step(0.1);
  };
}

const std::vector<Strategy>& strategies() {
  static const std::vector<Strategy> all = {
      {"data_parallel", [](auto& m, const auto& g) { return replicated(m, g, {}); }},
      {"stable", [](auto& m, const auto& g) { return replicated(m, g, {.num_grains = 2}); }},
      {"static", [](auto& m, const auto& g) { return replicated(m, g, {.static_order = true}); },
       false},
      {"zero1", [](auto& m, const auto& g) { return sharded(shard_optimizer(m, g)); }},
      {"zero2",
       [](auto& m, const auto& g) {
         return sharded(shard_optimizer(m, g, {.whole_gradients = WholeGradients::kFreed}));
       }},
      {"zero3", [](auto& m, const auto& g) { return fully_sharded(m, g, {}); }},
      {"gathered",
       [](auto& m, const auto& g) { return fully_sharded(m, g, {.share_memory = false}); }, true,
       true},
      {"hybrid",
       [](auto& m, const auto& g) {
         const auto alone = g.subgroup({g.rank()}, "alone");
         return fully_sharded(m, alone, {.replicas = g});
       }},
      {"server", [](auto& m, const auto& g) { return served(m, g, ServerTiming::kSynchronous); },
       false},
      {"asynchronous server",
       [](auto& m, const auto& g) { return served(m, g, ServerTiming::kAsynchronous); }, false,
       false, false}};
  return all;
}

/// Runs `body` with each strategy after a step that all of them take.
void with_each(const std::function<void(const Strategy&, Net&, const Step&, int rank)>& body,
               bool peers_only = false) {
  run_ranks(2, [&](world::World& world) {
    for (const Strategy& strategy : strategies()) {
      if (peers_only && !strategy.notifies_peers) continue;
      SCOPED_TRACE(strategy.name);
      Net net(world.rank());
      const Step step = strategy.start(net, world.group());
      if (strategy.warms) step([&] { net.loss().backward(); });
      body(strategy, net, step, world.rank());
    }
  });
}

std::string refused(const Step& step, Net& net) {
  return refusal([&] { step([&] { net.loss().backward(); }); });
}

TEST(ChangedModule, FrozenParametersAndBuffersAreThoseOfRankZero) {
  with_each([](const Strategy& strategy, Net& net, const Step&, int) {
    const Net first(0);
    EXPECT_TRUE(at::equal(net.shift, first.shift));
    if (strategy.gathers) return;
    EXPECT_TRUE(at::equal(net.adapter->weight, first.adapter->weight));
    EXPECT_TRUE(at::equal(net.adapter->bias, first.adapter->bias));
  });
}

TEST(ChangedModule, FrozenParametersAreCompared) {
  run_ranks(2, [](world::World& world) {
    Net net(0);
    auto replicas = data_parallel(net, world.group());
    const torch::NoGradGuard no_grad;
    if (world.rank() == 1) net.adapter->weight[1][1] += 1;
    EXPECT_THAT(refusal([&] { replicas.check_parameters(); }),
                AllOf(HasSubstr("adapter.weight"), HasSubstr("ranks 1")));
  });
}

TEST(ChangedModule, FreezingOnOneRankIsToldByAll) {
  run_ranks(2, [](world::World& world) {
    for (const Strategy& strategy : strategies()) {
      Net net(0);
      if (world.rank() == 1) net.head->bias.set_requires_grad(false);
      EXPECT_THAT(refusal([&] { strategy.start(net, world.group()); }),
                  HasSubstr(world.rank() == 1 ? "head.bias [2] Float without a gradient"
                                              : "head.bias [2] Float that requires a gradient"))
          << strategy.name;
    }
  });
}

TEST(ChangedModule, AThawedParameterIsRefusedByName) {
  with_each([](const Strategy&, Net& net, const Step& step, int) {
    net.adapter->weight.set_requires_grad(true);
    EXPECT_THAT(refused(step, net),
                AllOf(HasSubstr("parameter adapter.weight required no gradient"),
                      Not(HasSubstr("adapter.bias"))));
  });
}

TEST(ChangedModule, AThawedParameterOfOneRankIsRefusedByAll) {
  with_each(
      [](const Strategy&, Net& net, const Step& step, int rank) {
        if (rank == 1) net.adapter->weight.set_requires_grad(true);
        const std::string said = refused(step, net);
        EXPECT_THAT(said, HasSubstr("parameter adapter.weight required no gradient"));
        EXPECT_EQ(said.starts_with("rank 1: "), rank == 0) << said;
      },
      /*peers_only=*/true);
}

TEST(ChangedModule, ABackwardThatReachesOnlyWhatWasFrozenIsRefused) {
  with_each([](const Strategy& strategy, Net& net, const Step& step, int) {
    if (strategy.gathers) return;  // the sum below reads no unit
    net.adapter->weight.set_requires_grad(true);
    EXPECT_THAT(refusal([&] { step([&] { net.adapter->weight.sum().backward(); }); }),
                HasSubstr("adapter.weight"));
  });
}

TEST(ChangedModule, AReplacedModuleIsRefusedByName) {
  with_each([](const Strategy&, Net& net, const Step& step, int) {
    net.head = net.replace_module("head", torch::nn::Linear(3, 2));
    EXPECT_THAT(refused(step, net),
                AllOf(HasSubstr("parameter head.weight is new"), HasSubstr("head.bias")));
  });
}

TEST(ChangedModule, ANewModuleIsRefusedByNameThoughNothingReachesIt) {
  with_each([](const Strategy&, Net& net, const Step& step, int) {
    net.adapter->register_module("more", torch::nn::Linear(1, 1));
    EXPECT_THAT(refused(step, net), HasSubstr("parameter adapter.more.weight is new"));
  });
}

TEST(ChangedModule, ABufferThatRequiresAGradientIsRefusedByName) {
  with_each([](const Strategy&, Net& net, const Step& step, int) {
    net.shift.set_requires_grad(true);
    EXPECT_THAT(refused(step, net), HasSubstr("buffer shift requires a gradient"));
  });
  run_ranks(2, [](world::World& world) {
    for (const Strategy& strategy : strategies()) {
      Net net(0);
      net.shift.set_requires_grad(true);
      EXPECT_THAT(refusal([&] { strategy.start(net, world.group()); }),
                  HasSubstr("buffer shift requires a gradient"))
          << strategy.name;
    }
  });
}

TEST(ChangedModule, ChangesAreToldByEveryCallOfReplicas) {
  run_ranks(2, [](world::World& world) {
    using Call = std::function<void(Replicas&)>;
    for (const Call& call :
         {Call([](Replicas& r) { r.finish(); }), Call([](Replicas& r) { r.check_parameters(); })}) {
      Net net(0);
      auto replicas = data_parallel(net, world.group());
      if (world.rank() == 1) net.adapter->weight.set_requires_grad(true);
      EXPECT_THAT(refusal([&] { call(replicas); }), HasSubstr("adapter.weight"));
    }
  });
}

/// Without a gradient on any rank it stays as it is; with one on some ranks, all take the same step.
TEST(ChangedModule, AParameterThatIsFrozenLaterCountsAsUnused) {
  for (const bool everywhere : {true, false}) {
    with_each([&](const Strategy& strategy, Net& net, const Step& step, int rank) {
      if (strategy.name == "static" || strategy.name == "asynchronous server") return;
      const bool frozen = everywhere || rank == 1;
      if (frozen) net.body->weight.set_requires_grad(false);
      EXPECT_EQ(refused(step, net), "accepted");
      net.body->weight.set_requires_grad(true);
      EXPECT_EQ(refused(step, net), "accepted");
    });
  }
}

TEST(ChangedModule, AnotherDtypeIsRefusedWhereSumsHaveTheOldOne) {
  run_ranks(2, [](world::World& world) {
    for (const Strategy& strategy : strategies()) {
      if (strategy.name.find("zero") == 0 || strategy.gathers || strategy.name == "hybrid")
        continue;
      SCOPED_TRACE(strategy.name);
      Net net(0);
      const Step step = strategy.start(net, world.group());
      net.to(torch::kDouble);
      const auto backward = [&] {
        const at::Tensor x = torch::tanh(net.body(torch::ones({3, 2}, torch::kDouble)));
        net.head(x).sum().backward();
      };
      EXPECT_THAT(refusal([&] { step(backward); }),
                  HasSubstr("parameter body.weight is Double [3 2] on cpu and was Float"));
    }
  });
}

TEST(ChangedModule, WhatAnotherHandleTrainsIsLeftToIt) {
  run_ranks(2, [](world::World& world) {
    Net net(0);
    auto replicas = data_parallel(net, world.group());
    for (auto& p : net.adapter->parameters()) p.set_requires_grad(true);
    auto of_adapter = data_parallel(*net.adapter, world.group());
    auto more = net.register_module("more", torch::nn::Linear(2, 1));
    auto of_more = std::make_unique<Replicas>(data_parallel(*more, world.group()));
    const auto backward = [&] {
      (net.loss() + more->forward(torch::ones({1, 2})).sum()).backward();
    };
    EXPECT_EQ(refusal(backward), "accepted");
    of_more.reset();
    EXPECT_THAT(refusal(backward), HasSubstr("more.weight is new"));
  });
}

/// Handles end in any order.
TEST(ChangedModule, AHandleTakesOffItsOwnHooksOnly) {
  run_ranks(2, [](world::World& world) {
    Net net(0);
    auto replicas = std::make_unique<Replicas>(data_parallel(net, world.group()));
    for (auto& p : net.adapter->parameters()) p.set_requires_grad(true);
    auto of_adapter = data_parallel(*net.adapter, world.group());
    replicas.reset();
    (net.adapter->weight.sum() * (1 + world.rank())).backward();
    EXPECT_TRUE(at::equal(net.adapter->weight.grad(), torch::full({3, 3}, 1.5)));
  });
}

}  // namespace changed_module
}  // namespace
}  // namespace hanji::parallel
