// Strategies that must give the same bits as each other.
#include <gmock/gmock.h>
#include <torch/optim/adamw.h>
#include <torch/types.h>

#include <functional>

#include "hanji/parallel/checkpointed.h"
#include "hanji/parallel/ddp/data_parallel.h"
#include "hanji/parallel/flat_parameters.h"
#include "hanji/parallel/fsdp/fully_shard.h"
#include "hanji/parallel/fsdp/shard_optimizer.h"
#include "hanji/parallel/grad_norm.h"
#include "hanji/parallel/optimizer.h"
#include "hanji/parallel/server/parameter_server.h"
#include "hanji/parallel/test_net.h"

namespace hanji::parallel {
namespace {

using namespace test_net;
using test::run_ranks;

TEST(SameBits, OfAShardedOptimizerAndOfDataParallel) {
  run_ranks(3, [](world::World& world) {
    const int64_t begin = world.rank() * 4;
    Net ours(torch::kFloat), theirs(torch::kFloat);
    auto sharded = shard_optimizer(ours, world.group(), {.unit_bytes = 5000});
    auto replicas = data_parallel(theirs, world.group());
    torch::optim::AdamW our_optimizer(sharded.parameters(), 1e-2);
    torch::optim::AdamW their_optimizer(distinct(theirs), 1e-2);
    for (int step = 0; step < 5; ++step) {
      our_optimizer.zero_grad();
      their_optimizer.zero_grad();
      mean_loss(ours, step, begin, begin + 4).backward();
      mean_loss(theirs, step, begin, begin + 4).backward();
      const double norm = clip_grad_norm(distinct(theirs), 0.05);
      EXPECT_EQ(sharded.clip_grad_norm(0.05), norm);
      sharded.step(our_optimizer);
      their_optimizer.step();
    }
    EXPECT_TRUE(same_bits(values_of(ours), values_of(theirs)));
  });
}

/// A job in stable, and how it is cut into pieces; its result must not depend on the latter.
struct Job {
  int64_t num_grains = 8;
  bool recomputes = false;  ///< The forward, in backward.
  bool small = false;       ///< Buckets, units, messages of a few KiB.
};

constexpr double kLearningRate = 1e-2;

at::Tensor loss_of(Net& net, const Job& job, int step, int64_t grain) {
  if (!job.recomputes) return loss_of_grain(net, step, grain);
  const double scale = std::pow(10.0, static_cast<double>(grain % 5) - 2);
  const at::Tensor x = rows(step, grain, grain + 1).to(torch::kFloat);
  const auto forward = [&net](const at::Tensor& input) { return net.forward(input); };
  return checkpointed(forward, x).square().sum() * scale;
}

/// No rank, no group: the tree as it is written down, and AdamW on flat buffers.
Values alone(int64_t num_grains) {
  Net net(torch::kFloat);
  const std::vector<at::Tensor> parameters = distinct(net);
  std::vector<int64_t> sizes;
  for (const auto& parameter : parameters) sizes.push_back(parameter.numel());
  const layout::FlatLayout layout = layout::flat_layout(sizes);
  const at::Tensor flat = torch::zeros({layout.count});
  const at::Tensor gradients = torch::zeros({layout.count});
  move_into_flat(parameters, layout, flat);
  FlatAdamW optimizer(parameters, layout, gradients, {});
  for (int step = 0; step < kStableSteps; ++step) {
    const Values sums = tree_sum(net, step, 0, num_grains);
    for (size_t i = 0; i < sums.size(); ++i) {
      gradients.narrow(0, layout.offsets[i], sizes[i]).copy_(sums[i].flatten());
    }
    optimizer.step(kLearningRate, 1);
  }
  return values_of(net);
}

template <class Bond>
void train(Net& net, Bond& bond, const Job& job, const std::function<void()>& update) {
  for (int step = 0; step < kStableSteps; ++step) {
    const layout::Range grains = bond.grains();
    for (int64_t grain = grains.begin; grain < grains.end; ++grain) {
      bond.grain(grain);
      loss_of(net, job, step, grain).backward();
    }
    update();
  }
}

Values by_replicas(world::World& world, const Job& job) {
  Net net(torch::kFloat, world.rank());
  auto replicas = data_parallel(net, world.group(),
                                {.average = Average::kSum,
                                 .bucket_bytes = job.small ? 4096 : 25 << 20,
                                 .num_grains = job.num_grains});
  std::vector<at::Tensor> parameters;
  for (const auto& entry : replicas.parameters()) parameters.push_back(entry.tensor);
  FlatAdamW optimizer(parameters, replicas.buckets().flat, replicas.flat_gradients(), {});
  train(net, replicas, job, [&] { optimizer.step(kLearningRate, 1); });
  return values_of(net);
}

Values by_server(world::World& world, const Job& job) {
  Net net(torch::kFloat, world.rank());
  ParameterServerOptions options{.average = Average::kSum, .num_grains = job.num_grains};
  if (job.small) options.message_bytes = 4096;
  auto server = parameter_server(net, world.group(), options);
  train(net, server, job, [&] { server.step(kLearningRate); });
  server.synchronize();
  return values_of(net);
}

Values by_shards(Net& net, Sharded sharded, const Job& job) {
  const auto parameters = sharded.parameters();
  FlatAdamW optimizer(parameters, sharded.flat_layout(), sharded.flat_gradients(), {});
  train(net, sharded, job, [&] {
    sharded.step([&] { optimizer.step(kLearningRate, 1); });
    for (const auto& parameter : parameters) parameter.mutable_grad().reset();
  });
  const auto full = sharded.full_parameters();
  return values_of(net);
}

Values by_zero(world::World& world, const Job& job, WholeGradients whole) {
  Net net(torch::kFloat, world.rank());
  ShardOptimizerOptions options{
      .sharding = {.average = Average::kSum, .num_grains = job.num_grains},
      .whole_gradients = whole,
      .unit_bytes = job.small ? 4096 : 25 << 20};
  return by_shards(net, shard_optimizer(net, world.group(), options), job);
}

/// Parameters shared in the heap, or gathered by every rank for itself.
Values by_full_shards(world::World& world, const Job& job) {
  Net net(torch::kFloat, world.rank());
  FullyShardOptions options{.calls = UnitCalls::kLens};
  options.sharding = {
      .average = Average::kSum, .share_memory = !job.small, .num_grains = job.num_grains};
  return by_shards(net, fully_shard(net, world.group(), options), job);
}

Values by_hybrid_shards(world::World& world, const Job& job) {
  Net net(torch::kFloat, world.rank());
  const auto mesh = world.mesh({{"dp", 2}, {"fsdp", world.size() / 2}});
  FullyShardOptions options{.strategy = ShardingStrategy::kHybridShard, .calls = UnitCalls::kLens};
  options.sharding = {.average = Average::kSum,
                      .replicas = mesh["dp"],
                      .share_memory = !job.small,
                      .num_grains = job.num_grains,
                      .everyone = world.group()};
  return by_shards(net, fully_shard(net, mesh["fsdp"], options), job);
}

/// The lens sees a forward, not one that backward repeats.
bool strategy_is_by_lens(std::string_view name) { return name == "zero3" || name == "hybrid"; }

TEST(SameBits, OfEveryStrategyOnAnyRanksInAnyPieces) {
  using Strategy = std::function<Values(world::World&, const Job&)>;
  const std::vector<std::pair<const char*, Strategy>> strategies = {
      {"replicas", by_replicas},
      {"server", by_server},
      {"zero1", [](auto& w, const Job& j) { return by_zero(w, j, WholeGradients::kKept); }},
      {"zero2", [](auto& w, const Job& j) { return by_zero(w, j, WholeGradients::kFreed); }},
      {"zero3", by_full_shards},
      {"hybrid", by_hybrid_shards}};
  for (const int64_t num_grains : {4, 8}) {
    const Values expected = alone(num_grains);
    for (const int ranks : {1, 2, 3, 4}) {
      run_ranks(ranks, [&](world::World& world) {
        for (const auto& [name, strategy] : strategies) {
          if (ranks % 2 != 0 && std::string_view(name) == "hybrid") continue;
          const bool by_lens = strategy_is_by_lens(name);
          for (const int pieces : {0, 1, 2, 3}) {
            const Job job{num_grains, pieces % 2 == 1, pieces >= 2};
            if (job.recomputes && by_lens) continue;
            EXPECT_TRUE(same_bits(strategy(world, job), expected))
                << name << ", " << ranks << " ranks, " << num_grains << " grains, recompute "
                << job.recomputes << ", small " << job.small;
          }
        }
      });
    }
  }
}

}  // namespace
}  // namespace hanji::parallel
