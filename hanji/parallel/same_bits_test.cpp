// Strategies that must give the same bits as each other.
#include <gmock/gmock.h>
#include <torch/optim/adamw.h>
#include <torch/types.h>

#include <chrono>
#include <functional>
#include <memory>
#include <random>
#include <thread>

#include "hanji/comm/all_reduce.h"
#include "hanji/comm/before_call.h"
#include "hanji/parallel/checkpointed.h"
#include "hanji/parallel/ddp/data_parallel.h"
#include "hanji/parallel/flat_optimizer.h"
#include "hanji/parallel/flat_parameters.h"
#include "hanji/parallel/fsdp/fully_shard.h"
#include "hanji/parallel/fsdp/shard_optimizer.h"
#include "hanji/parallel/grad_norm.h"
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

/// A job, and how it is cut into pieces; its result must not depend on the latter.
struct Job {
  int64_t num_grains = 8;   ///< Of a step in stable; 0: two micro-batches per rank, in float64.
  bool recomputes = false;  ///< The forward, in backward.
  bool small = false;       ///< Buckets, units, messages of a few KiB.

  bool is_stable() const { return num_grains > 0; }
  int num_steps() const { return is_stable() ? kStableSteps : kSteps; }
  at::ScalarType dtype() const { return is_stable() ? torch::kFloat : torch::kDouble; }
  Average average() const { return is_stable() ? Average::kSum : Average::kMean; }
};

/// A job on one rank.
struct RankJob {
  world::World& world;
  Job job;
  std::vector<double> losses = {};  ///< This rank's mean of every step; not in stable.
};

constexpr double kLearningRate = 1e-2;

at::Tensor loss_of(Net& net, const Job& job, int step, int64_t grain) {
  if (!job.recomputes) return loss_of_grain(net, step, grain);
  const double scale = std::pow(10.0, static_cast<double>(grain % 5) - 2);
  const at::Tensor x = rows(step, grain, grain + 1).to(torch::kFloat);
  const auto forward = [&net](const at::Tensor& input) { return net.forward(input); };
  return checkpointed(forward, x).square().sum() * scale;
}

std::unique_ptr<FlatOptimizer> make_adamw(FlatPart part, const SumOverParts&) {
  return flat_adamw(std::move(part));
}

/// Of parameters that lie in a flat buffer from here on.
std::unique_ptr<FlatOptimizer> adamw_of(const std::vector<NamedParameter>& parameters,
                                        const layout::FlatLayout& layout,
                                        const at::Tensor& gradients) {
  return flat_adamw(
      whole_part(parameters, layout, at::zeros_like(gradients), gradients, decay_matrices()));
}

/// No rank, no group: the whole batch, or the tree as it is written down, and AdamW on flat buffers.
Values alone(const Job& job, std::vector<double>* losses = nullptr) {
  Net net(job.dtype());
  const auto parameters = learning_parameters(net);
  const layout::FlatLayout layout = flat_layout_of(parameters);
  const at::Tensor gradients = torch::zeros({layout.count}, job.dtype());
  const auto optimizer = adamw_of(parameters, layout, gradients);
  for (int step = 0; step < job.num_steps(); ++step) {
    Values sums;
    if (job.is_stable()) {
      sums = tree_sum(net, step, 0, job.num_grains);
    } else {
      net.zero_grad();
      const at::Tensor loss = mean_loss(net, step, 0, kBatch);
      loss.backward();
      if (losses != nullptr) losses->push_back(loss.item<double>());
      for (const auto& parameter : parameters) sums.push_back(parameter.tensor.grad());
    }
    for (size_t i = 0; i < sums.size(); ++i) {
      gradients.narrow(0, layout.offsets[i], layout.sizes[i]).copy_(sums[i].flatten());
    }
    optimizer->step(kLearningRate, 1);
  }
  return values_of(net);
}

template <class Bond>
void compute_grains(Net& net, Bond& bond, const Job& job, int step) {
  const layout::Range grains = bond.grains();
  for (int64_t grain = grains.begin; grain < grains.end; ++grain) {
    bond.grain(grain);
    loss_of(net, job, step, grain).backward();
  }
}

/// This rank's rows in two parts of different sizes, the first of which only accumulates. A server
/// takes what lies in `.grad`.
template <class Bond>
double compute_micro_batches(Net& net, Bond& bond, const world::World& world, int step) {
  const int64_t begin = world.rank() * kBatch / world.size();
  const int64_t end = (world.rank() + 1) * kBatch / world.size();
  const int64_t middle = begin + (end - begin) / 3;
  double sum = 0;
  const auto backward = [&](int64_t first, int64_t last) {
    const double share = static_cast<double>(last - first) / static_cast<double>(end - begin);
    const at::Tensor loss = mean_loss(net, step, first, last) * share;
    loss.backward();
    sum += loss.item<double>();
  };
  if constexpr (requires { bond.accumulate(); }) {
    const auto guard = bond.accumulate();
    backward(begin, middle);
  } else {
    backward(begin, middle);
  }
  backward(middle, end);
  return sum;
}

template <class Bond>
void train(Net& net, Bond& bond, RankJob& run, const std::function<void()>& update) {
  for (int step = 0; step < run.job.num_steps(); ++step) {
    if (run.job.is_stable()) {
      compute_grains(net, bond, run.job, step);
    } else {
      run.losses.push_back(compute_micro_batches(net, bond, run.world, step));
    }
    update();
    net.zero_grad();
  }
}

Values by_replicas(RankJob& run) {
  const Job& job = run.job;
  Net net(job.dtype(), run.world.rank());
  auto replicas = data_parallel(net, run.world.group(),
                                {.average = job.average(),
                                 .bucket_bytes = job.small ? 4096 : 25 << 20,
                                 .num_grains = job.num_grains});
  const auto optimizer =
      adamw_of(replicas.parameters(), replicas.buckets().flat, replicas.flat_gradients());
  train(net, replicas, run, [&] { optimizer->step(kLearningRate, 1); });
  return values_of(net);
}

Values by_server(RankJob& run) {
  const Job& job = run.job;
  Net net(job.dtype(), run.world.rank());
  ParameterServerOptions options{.average = job.average(), .num_grains = job.num_grains};
  if (job.small) options.message_bytes = 4096;
  auto server = parameter_server(net, run.world.group(), options);
  train(net, server, run, [&] { server.step(kLearningRate); });
  server.synchronize();
  return values_of(net);
}

Values by_shards(Net& net, Sharded sharded, RankJob& run) {
  const auto parameters = sharded.parameters();
  const auto optimizer = optimizer_of_parts(make_adamw, sharded.flat_parts());
  train(net, sharded, run, [&] {
    sharded.step([&] { optimizer->step(kLearningRate, 1); });
    for (const auto& parameter : parameters) parameter.mutable_grad().reset();
  });
  const auto full = sharded.full_parameters();
  return values_of(net);
}

Values by_zero(RankJob& run, WholeGradients whole) {
  const Job& job = run.job;
  Net net(job.dtype(), run.world.rank());
  ShardOptimizerOptions options{
      .sharding = {.average = job.average(), .num_grains = job.num_grains},
      .whole_gradients = whole,
      .unit_bytes = job.small ? 4096 : 25 << 20};
  return by_shards(net, shard_optimizer(net, run.world.group(), options), run);
}

/// Parameters shared in the heap, or gathered by every rank for itself.
Values by_full_shards(RankJob& run) {
  const Job& job = run.job;
  Net net(job.dtype(), run.world.rank());
  FullyShardOptions options{.calls = UnitCalls::kLens};
  options.sharding = {
      .average = job.average(), .share_memory = !job.small, .num_grains = job.num_grains};
  return by_shards(net, fully_shard(net, run.world.group(), options), run);
}

Values by_hybrid_shards(RankJob& run) {
  const Job& job = run.job;
  Net net(job.dtype(), run.world.rank());
  const auto mesh = run.world.mesh({{"dp", 2}, {"fsdp", run.world.size() / 2}});
  FullyShardOptions options{.strategy = ShardingStrategy::kHybridShard, .calls = UnitCalls::kLens};
  options.sharding = {.average = job.average(),
                      .replicas = mesh["dp"],
                      .share_memory = !job.small,
                      .num_grains = job.num_grains,
                      .everyone = run.world.group()};
  return by_shards(net, fully_shard(net, mesh["fsdp"], options), run);
}

using Strategy = std::function<Values(RankJob&)>;

/// All that `ranks` can form.
std::vector<std::pair<std::string, Strategy>> strategies_of(int ranks) {
  std::vector<std::pair<std::string, Strategy>> strategies = {
      {"replicas", by_replicas},
      {"server", by_server},
      {"zero1", [](RankJob& run) { return by_zero(run, WholeGradients::kKept); }},
      {"zero2", [](RankJob& run) { return by_zero(run, WholeGradients::kFreed); }},
      {"zero3", by_full_shards}};
  if (ranks % 2 == 0) strategies.emplace_back("hybrid", by_hybrid_shards);
  return strategies;
}

TEST(SameBits, OfEveryStrategyOnAnyRanksInAnyPieces) {
  for (const int64_t num_grains : {4, 8}) {
    const Values expected = alone({num_grains});
    for (const int ranks : {1, 2, 3, 4}) {
      run_ranks(ranks, [&](world::World& world) {
        for (const auto& [name, strategy] : strategies_of(ranks)) {
          for (const int pieces : {0, 1, 2, 3}) {
            RankJob run{world, {num_grains, pieces % 2 == 1, pieces >= 2}};
            EXPECT_TRUE(same_bits(strategy(run), expected))
                << name << ", " << ranks << " ranks, " << num_grains << " grains, recompute "
                << run.job.recomputes << ", small " << run.job.small;
          }
        }
      });
    }
  }
}

/// From here on the rank sleeps before some of its calls, no rank as another does.
std::shared_ptr<int> delay_calls(const world::World& world) {
  auto num_calls = std::make_shared<int>(0);
  const auto random = std::make_shared<std::mt19937>(100 + world.rank());
  comm::before_call(world.group(), [num_calls, random] {
    ++*num_calls;
    if ((*random)() % 8 != 0) return;
    std::this_thread::sleep_for(std::chrono::microseconds((*random)() % 300));
  });
  return num_calls;
}

TEST(SameBits, OfEveryStrategyUnderRandomDelaysBeforeCalls) {
  const Values expected = alone({});
  for (const int ranks : {3, 4}) {
    run_ranks(ranks, [&](world::World& world) {
      const auto num_calls = delay_calls(world);
      for (const auto& [name, strategy] : strategies_of(ranks)) {
        for (const bool small : {false, true}) {
          RankJob run{world, {.small = small}};
          const int before = *num_calls;
          EXPECT_TRUE(same_bits(strategy(run), expected)) << name << ", small " << small;
          EXPECT_GE(*num_calls - before, kStableSteps) << name;
        }
      }
    });
  }
}

class OneProcess : public testing::TestWithParam<int> {};

TEST_P(OneProcess, IsTwentyStepsOfEveryStrategyWithAccumulationAndDelays) {
  const int ranks = GetParam();
  std::vector<double> expected_losses;
  const Values expected = alone({.num_grains = 0}, &expected_losses);
  run_ranks(ranks, [&](world::World& world) {
    delay_calls(world);
    for (const auto& [name, strategy] : strategies_of(ranks)) {
      RankJob run{world, {.num_grains = 0, .small = true}};
      EXPECT_LT(largest_difference(strategy(run), expected), kTolerance) << name;
      at::Tensor losses = torch::tensor(run.losses, torch::kDouble) / ranks;
      comm::all_reduce(losses, world.group()).wait();
      const at::Tensor apart = losses - torch::tensor(expected_losses, torch::kDouble);
      EXPECT_LT(apart.abs().max().item<double>(), kTolerance) << name;
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, OneProcess, testing::Values(2, 3, 4));

}  // namespace
}  // namespace hanji::parallel
