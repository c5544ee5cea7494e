/// Strategies side by side in one module, over the world and the axes of a mesh.
#include <gmock/gmock.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adamw.h>
#include <torch/types.h>

#include "hanji/mesh/mesh.h"
#include "hanji/parallel/ddp/data_parallel.h"
#include "hanji/parallel/fsdp/fully_shard.h"
#include "hanji/parallel/fsdp/shard_optimizer.h"
#include "hanji/parallel/fsdp/unit.h"
#include "hanji/parallel/server/parameter_server.h"
#include "hanji/parallel/test_net.h"

namespace hanji::parallel {
namespace {

using test::run_ranks;

constexpr int kSteps = 5;
constexpr double kRate = 1e-2;

struct LinkImpl : torch::nn::Module {
  at::Tensor forward(const at::Tensor& x) { return torch::tanh(unit(inner)(x)); }
  torch::nn::Linear inner = register_module("inner", torch::nn::Linear(17, 19));
};
TORCH_MODULE(Link);

/// A part for each strategy, in a chain.
struct Chain : torch::nn::Module {
  explicit Chain(int seed = 0) {
    to(torch::kDouble);
    const torch::NoGradGuard no_grad;
    for (auto& p : parameters()) {
      const auto index = torch::arange(p.numel(), torch::kDouble) + 1 + 100 * seed;
      p.copy_((index.sin() * 0.3).view(p.sizes()));
    }
  }
  at::Tensor forward(const at::Tensor& x) {
    const auto a = torch::tanh(replicated(x));
    const auto b = unit(sharded)(a);
    return served(torch::tanh(updated(b)));
  }
  torch::nn::Linear replicated = register_module("replicated", torch::nn::Linear(3, 17));
  Link sharded = register_module("sharded", Link());
  torch::nn::Linear updated = register_module("updated", torch::nn::Linear(19, 13));
  torch::nn::Linear served = register_module("served", torch::nn::Linear(13, 2));
};

at::Tensor loss_of(Chain& net, int step, int64_t begin, int64_t end) {
  return net.forward(test_net::rows(step, begin, end)).square().mean();
}

test_net::Values values_of(Chain& net) {
  test_net::Values values;
  for (const auto& p : net.parameters()) values.push_back(p.detach().clone());
  return values;
}

torch::optim::AdamW adamw(const std::vector<at::Tensor>& parameters) {
  const auto options = torch::optim::AdamWOptions(kRate).betas({0.9, 0.95}).weight_decay(0);
  return torch::optim::AdamW(parameters, options);
}

test_net::Values train_alone() {
  Chain net;
  auto optimizer = adamw(net.parameters());
  for (int step = 0; step < kSteps; ++step) {
    optimizer.zero_grad();
    loss_of(net, step, 0, 8).backward();
    optimizer.step();
  }
  return values_of(net);
}

TEST(Composed, EachPartOfAModuleMayHaveItsOwnStrategyAndAxis) {
  const test_net::Values expected = train_alone();
  run_ranks(4, [&](world::World& world) {
    const auto mesh = world.mesh({{"dp", 2}, {"fsdp", 2}});
    for (const bool share : {true, false}) {
      Chain net(world.rank());
      auto replicas = data_parallel(*net.replicated, world.group());
      const ShardingOptions hybrid{.replicas = mesh["dp"], .share_memory = share};
      auto sharded = fully_shard(*net.sharded, mesh["fsdp"],
                                 {.sharding = hybrid,
                                  .strategy = ShardingStrategy::kHybridShard,
                                  .units = units_of_type<torch::nn::LinearImpl>()});
      auto updated =
          shard_optimizer(*net.updated, world.group(), {.sharding = {.share_memory = share}});
      auto server = parameter_server(*net.served, world.group(), {.rule = decay_matrices(0)});
      auto of_replicas = adamw(net.replicated->parameters());
      auto of_shards = adamw(sharded.parameters()), of_updated = adamw(updated.parameters());
      for (int step = 0; step < kSteps; ++step) {
        for (auto* optimizer : {&of_replicas, &of_shards, &of_updated}) optimizer->zero_grad();
        net.served->zero_grad();
        loss_of(net, step, 2 * world.rank(), 2 * world.rank() + 2).backward();
        of_replicas.step();
        sharded.step(of_shards);
        updated.step(of_updated);
        server.step(kRate);
      }
      const auto full = sharded.full_parameters();
      EXPECT_LT(test_net::largest_difference(values_of(net), expected), test_net::kTolerance);
    }
  });
}

}  // namespace
}  // namespace hanji::parallel
