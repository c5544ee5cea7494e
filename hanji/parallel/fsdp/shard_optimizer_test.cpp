#include "hanji/parallel/fsdp/shard_optimizer.h"

#include <gmock/gmock.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>

#include <chrono>
#include <thread>

#include "hanji/comm/heap.h"
#include "hanji/parallel/flat_parameters.h"
#include "hanji/parallel/fsdp/description.h"
#include "hanji/parallel/fsdp/whole_values.h"
#include "hanji/parallel/grad_norm.h"
#include "hanji/parallel/test_net.h"

namespace hanji::parallel {
namespace {

using namespace test_net;
using test::run_ranks;
using testing::HasSubstr;

using Kind = std::tuple<int, WholeGradients, bool>;

ShardOptimizerOptions options_of(const Kind& kind, int64_t unit_bytes) {
  return {.sharding = {.share_memory = std::get<2>(kind)},
          .whole_gradients = std::get<1>(kind),
          .unit_bytes = unit_bytes};
}

class ShardOptimizer : public testing::TestWithParam<Kind> {};

TEST_P(ShardOptimizer, TwentyStepsAreThoseOfOneProcess) {
  std::vector<double> losses;
  const Values expected = train_alone(losses);
  const int ranks = std::get<0>(GetParam());
  run_ranks(ranks, [&](world::World& world) {
    Net net(torch::kDouble, world.rank());
    auto sharded = shard_optimizer(net, world.group(), options_of(GetParam(), 20000));
    torch::optim::AdamW optimizer(sharded.parameters(), 1e-2);
    const int64_t begin = world.rank() * kBatch / ranks, end = (world.rank() + 1) * kBatch / ranks;
    for (int step = 0; step < kSteps; ++step) {
      optimizer.zero_grad();
      std::this_thread::sleep_for(
          std::chrono::microseconds(step * 7919 * (world.rank() + 1) % 997));
      mean_loss(net, step, begin, end).backward();
      sharded.step(optimizer);
    }
    EXPECT_LT(largest_difference(values_of(net), expected), kTolerance);
    const double loss = mean_loss(net, 0, 0, kBatch).item<double>();
    Net reference(torch::kDouble);
    const torch::NoGradGuard no_grad;
    for (size_t i = 0; i < expected.size(); ++i) distinct(reference)[i].copy_(expected[i]);
    EXPECT_NEAR(loss, mean_loss(reference, 0, 0, kBatch).item<double>(), kTolerance);
  });
}

TEST_P(ShardOptimizer, BothWaysToAccumulateGiveTheGradientsOfTheWholeBatch) {
  Net reference(torch::kDouble);
  (mean_loss(reference, 0, 0, 6) + mean_loss(reference, 0, 6, 12)).backward();
  torch::optim::SGD reference_optimizer(distinct(reference), 1);
  reference_optimizer.step();
  run_ranks(2, [&](world::World& world) {
    for (const bool reduces : {false, true}) {
      Net net(torch::kDouble);
      auto kind = GetParam();
      auto sharded = shard_optimizer(net, world.group(), options_of(kind, 100));
      torch::optim::SGD optimizer(sharded.parameters(), 1);
      const int64_t begin = world.rank() * 3;
      for (int64_t i = 0; i < 2; ++i) {
        optimizer.zero_grad(/*set_to_none=*/i == 0);
        const uint64_t before = world.group().sequence();
        if (reduces) {
          mean_loss(net, 0, begin, begin + 3).backward();
        } else {
          const auto guard = sharded.accumulate();
          mean_loss(net, 0, begin, begin + 3).backward();
        }
        EXPECT_EQ(world.group().sequence() == before, !reduces);
        mean_loss(net, 0, 6 + begin, 6 + begin + 3).backward();
        if (i == 0) continue;  // only clears
        sharded.step(optimizer);
      }
      EXPECT_LT(largest_difference(values_of(net), values_of(reference)), kTolerance);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Stages, ShardOptimizer,
                         testing::Combine(testing::Values(2, 3, 4),
                                          testing::Values(WholeGradients::kKept,
                                                          WholeGradients::kFreed),
                                          testing::Bool()));

TEST(ShardOptimizerStable, BitsDoNotDependOnRanksUnitsOrStage) {
  const Values expected = train_alone_stable();
  for (const int ranks : {1, 2, 3, 4}) {
    run_ranks(ranks, [&](world::World& world) {
      for (const int64_t unit_bytes : {100, 20000, 1 << 24}) {
        Net net(torch::kFloat);
        ShardOptimizerOptions options{.unit_bytes = unit_bytes};
        options.sharding.average = Average::kSum;
        options.sharding.num_grains = kGrains;
        options.sharding.share_memory = unit_bytes != 20000;
        auto sharded = shard_optimizer(net, world.group(), options);
        torch::optim::AdamW optimizer(sharded.parameters(), 1e-2);
        for (int step = 0; step < kStableSteps; ++step) {
          for (int64_t g = sharded.grains().begin; g < sharded.grains().end; ++g) {
            sharded.grain(g);
            loss_of_grain(net, step, g).backward();
          }
          sharded.step(optimizer);
        }
        EXPECT_TRUE(same_bits(values_of(net), expected)) << ranks << " ranks, " << unit_bytes;
      }
    });
  }
}

TEST(ShardOptimizerMemory, ParametersLieOnceAndMomentsAreAShare) {
  run_ranks(2, [](world::World& world) {
    Net net(torch::kFloat);
    auto sharded = shard_optimizer(net, world.group(), {.whole_gradients = WholeGradients::kFreed});
    const auto bytes = static_cast<size_t>(net.first->weight.nbytes());
    EXPECT_EQ(world.heap().usage().contains("parameters"), world.rank() == 0);
    EXPECT_GT(world.heap().usage()[world.rank() == 0 ? "parameters" : "gradient shards"],
              bytes / 2);
    int64_t owned = 0, all = 0;
    for (const auto& p : sharded.parameters()) owned += p.numel();
    for (const auto& p : values_of(net)) all += p.numel();
    EXPECT_LT(owned, all / 2 + 1100) << "half of it, but for one block";
    for (int step = 0; step < 3; ++step) {
      mean_loss(net, step, 0, 4).backward();
      EXPECT_ANY_THROW(net.first->weight.grad().sum()) << "gradients belong to the shards";
      sharded.step([] {});
    }
    EXPECT_THAT(describe(sharded), HasSubstr("lie once on this host"));
  });
}

TEST(ShardOptimizerFlat, AdamWOnPartsHasTheBitsOfTheWhole) {
  run_ranks(2, [](world::World& world) {
    Net net(torch::kFloat), whole(torch::kFloat);
    auto sharded = shard_optimizer(net, world.group(), {.unit_bytes = 100});
    const auto ours = optimizer_of_parts(
        [](FlatPart part, const SumOverParts&) { return flat_adamw(part); }, sharded.flat_parts());
    const auto parameters = learning_parameters(whole);
    const layout::FlatLayout layout = flat_layout_of(parameters);
    const at::Tensor gradients = torch::zeros({layout.count});
    const auto theirs = flat_adamw(
        whole_part(parameters, layout, at::zeros_like(gradients), gradients, decay_matrices()));
    for (int step = 0; step < 3; ++step) {
      for (const auto& p : sharded.parameters()) p.mutable_grad().reset();
      whole.zero_grad(true);
      mean_loss(net, step, 0, 12).backward();
      mean_loss(whole, step, 0, 12).backward();
      for (size_t i = 0; i < parameters.size(); ++i) {
        gradients.narrow(0, layout.offsets[i], layout.sizes[i])
            .copy_(parameters[i].tensor.grad().view({-1}));
      }
      sharded.step([&] { ours->step(1e-2, 2); });
      theirs->step(1e-2, 2);
    }
    EXPECT_TRUE(same_bits(values_of(net), values_of(whole)));
  });
}

TEST(ShardOptimizerState, GathersWholeMomentsAndScattersThemAgain) {
  run_ranks(3, [](world::World& world) {
    Net net(torch::kDouble);
    auto sharded = shard_optimizer(net, world.group());
    std::vector<at::Tensor> doubled;
    for (const auto& p : sharded.parameters()) doubled.push_back(p.detach() * 2);
    const auto whole = gather_values(sharded, doubled);
    ASSERT_EQ(whole.size(), 4u);
    EXPECT_EQ(whole[0].name, "tied");
    EXPECT_TRUE(at::equal(whole[0].tensor, net.tied.detach() * 2));
    const auto again = scatter_values(sharded, whole);
    EXPECT_TRUE(same_bits(again, doubled));
    EXPECT_THAT(refusal([&] { (void)scatter_values(sharded, {}); }),
                HasSubstr("none of that name"));
    EXPECT_THAT(refusal([&] { (void)gather_values(sharded, {}); }),
                HasSubstr("this rank's shard of"));
  });
}

TEST(ShardOptimizerUnused, AParameterNobodyUsedIsLeftAloneAndOneUsedOnOneRankIsNot) {
  run_ranks(2, [](world::World& world) {
    Net net(torch::kDouble);
    auto sharded = shard_optimizer(net, world.group(), {.unit_bytes = 100});
    torch::optim::AdamW optimizer(sharded.parameters(), 1e-2);
    const Values before = values_of(net);
    at::Tensor loss = net.second->weight.sum();
    if (world.rank() == 1) loss = loss + 4 * net.first->bias.sum();
    loss.backward();
    for (const Shard& shard : sharded.shards()) {
      const bool used = shard.name == "second.weight" || shard.name == "first.bias";
      ASSERT_EQ(shard.tensor.grad().defined(), used) << shard.name;
      if (shard.name != "first.bias") continue;
      EXPECT_TRUE(at::equal(shard.tensor.grad(), torch::full_like(shard.tensor, 2.0)));
    }
    sharded.step(optimizer);
    EXPECT_TRUE(at::equal(net.second->bias.detach(), before.back()));
    EXPECT_FALSE(at::equal(net.first->bias.detach(), before[1]));
  });
}

TEST(ShardOptimizerHybrid, ShardsOverOneAxisAndReplicatesOverTheOther) {
  std::vector<double> losses;
  const Values expected = train_alone(losses);
  const Values stable = train_alone_stable();
  run_ranks(4, [&](world::World& world) {
    const auto mesh = world.mesh({{"dp", 2}, {"fsdp", 2}});
    ShardOptimizerOptions options{.sharding = {.replicas = mesh["dp"]}, .unit_bytes = 20000};
    {
      Net net(torch::kDouble, world.rank());
      auto sharded = shard_optimizer(net, mesh["fsdp"], options);
      torch::optim::AdamW optimizer(sharded.parameters(), 1e-2);
      for (int step = 0; step < kSteps; ++step) {
        optimizer.zero_grad();
        mean_loss(net, step, world.rank() * 3, world.rank() * 3 + 3).backward();
        sharded.step(optimizer);
      }
      EXPECT_LT(largest_difference(values_of(net), expected), kTolerance);
    }
    options.sharding.average = Average::kSum;
    options.sharding.num_grains = kGrains;
    EXPECT_THAT(refusal([&] {
                  Net net(torch::kFloat);
                  shard_optimizer(net, mesh["fsdp"], options);
                }),
                HasSubstr("everyone"));
    options.sharding.everyone = world.group();
    Net net(torch::kFloat);
    auto sharded = shard_optimizer(net, mesh["fsdp"], options);
    torch::optim::AdamW optimizer(sharded.parameters(), 1e-2);
    for (int step = 0; step < kStableSteps; ++step) {
      for (int64_t g = sharded.grains().begin; g < sharded.grains().end; ++g) {
        sharded.grain(g);
        loss_of_grain(net, step, g).backward();
      }
      sharded.step(optimizer);
    }
    EXPECT_TRUE(same_bits(values_of(net), stable));
  });
}

TEST(ShardOptimizerErrors, NameTheParameterOnEveryRank) {
  run_ranks(2, [](world::World& world) {
    {
      torch::nn::Linear odd(3, world.rank() == 0 ? 4 : 5);
      EXPECT_THAT(refusal([&] { shard_optimizer(*odd, world.group()); }), HasSubstr("weight"));
    }
    Net net(torch::kFloat);
    torch::optim::SGD early(net.parameters(), 1);
    auto sharded = shard_optimizer(net, world.group());
    EXPECT_THAT(refusal([&] { shard_optimizer(net, world.group()); }),
                HasSubstr("tied is sharded already"));
    EXPECT_THAT(refusal([&] { sharded.step(early); }),
                testing::AllOf(HasSubstr("whole parameter tied"), HasSubstr("before sharding")));
    torch::optim::AdamW optimizer(sharded.parameters(), 1e-2);
    mean_loss(net, 0, 0, 4).backward();
    optimizer.step();
    EXPECT_THAT(refusal([&] { mean_loss(net, 0, 0, 4).backward(); }),
                HasSubstr("outside of step()"));
  });
}

TEST(ShardOptimizerErrors, FrozenModulesAndOddOptionsAreRefused) {
  run_ranks(1, [](world::World& world) {
    Net net(torch::kFloat);
    ShardOptimizerOptions options;
    options.sharding.max_units_in_flight = 0;
    EXPECT_THAT(refusal([&] { shard_optimizer(net, world.group(), options); }),
                HasSubstr("max_units_in_flight"));
    for (auto& p : net.parameters()) p.set_requires_grad(false);
    EXPECT_THAT(refusal([&] { shard_optimizer(net, world.group()); }),
                HasSubstr("requires a gradient"));
  });
}

}  // namespace
}  // namespace hanji::parallel
