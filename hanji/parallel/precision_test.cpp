// Mixed precision, loss scaling, moving averages and stochastic rounding.
#include <gmock/gmock.h>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>

#include <cmath>
#include <limits>

#include "hanji/base/status.h"
#include "hanji/parallel/ddp/data_parallel.h"
#include "hanji/parallel/loss_scaler.h"
#include "hanji/parallel/master_weights.h"
#include "hanji/parallel/moving_average.h"
#include "hanji/parallel/stochastic_rounding.h"
#include "hanji/test/run_ranks.h"

namespace hanji::parallel {
namespace {

TEST(LossScaler, OneRanksOverflowIsEveryRanksDecision) {
  test::run_ranks(3, [](world::World& world) {
    LossScaler scaler(world.group(), {.initial = 8, .interval = 2});
    const at::Tensor gradient = torch::full({5}, 16.0F);
    const auto step = [&](bool overflow) {
      gradient.fill_(16);
      if (overflow && world.rank() == 1) gradient[3] = std::numeric_limits<float>::infinity();
      return scaler.unscale(std::vector<at::Tensor>{gradient});
    };
    EXPECT_TRUE(step(false));
    EXPECT_EQ(gradient[0].item<float>(), 2);
    EXPECT_FALSE(step(true)) << world.rank();
    EXPECT_EQ(scaler.factor(), 4);
    EXPECT_TRUE(step(false));
    EXPECT_EQ(scaler.steps_since_change(), 1) << "an overflow begins the count anew";
    EXPECT_TRUE(step(false));
    EXPECT_EQ(scaler.factor(), 8);
    EXPECT_EQ(scaler.scale(torch::ones({})).item<float>(), 8);
    scaler.set(32, 1);
    EXPECT_TRUE(step(false));
    EXPECT_EQ(scaler.factor(), 64);
  });
}

TEST(LossScaler, TakesGradientsOfParametersAndRefusesNonsense) {
  test::run_ranks(1, [](world::World& world) {
    LossScaler scaler(world.group());
    const at::Tensor used = torch::ones({2}).requires_grad_();
    const at::Tensor unused = torch::ones({2}).requires_grad_();
    scaler.scale((used * 3).sum()).backward();
    EXPECT_TRUE(scaler.unscale_of(std::vector<at::Tensor>{used, unused, used}));  // tied
    EXPECT_TRUE(at::equal(used.grad(), torch::full({2}, 3.0F)));
    EXPECT_THROW(LossScaler(world.group(), {.backoff = 1}), Error);
    EXPECT_THROW(scaler.set(0, 0), Error);
  });
}

struct Small : torch::nn::Module {
  explicit Small(double shift = 0) {
    linear = register_module("linear", torch::nn::Linear(8, 3));
    scale = register_buffer("scale", torch::full({3}, 1 + 0x1p-20F));
    const torch::NoGradGuard no_grad;
    for (auto& p : parameters())
      p.copy_(torch::arange(p.numel()).add(1 + shift).sin().view(p.sizes()));
  }
  at::Tensor loss(int64_t part) {
    const at::Tensor x = torch::arange(32).add(5 * part).cos().view({4, 8});
    const at::Tensor y = linear(x.to(linear->weight.scalar_type())).to(torch::kFloat) * scale;
    return (y - torch::arange(12).sin().view({4, 3})).square().mean();
  }
  torch::nn::Linear linear{nullptr};
  at::Tensor scale;
};

TEST(MixedPrecision, GradientsOfBf16ParametersAreAddedUpInFloat32) {
  for (const int64_t num_grains : {0, 6}) {
    test::run_ranks(2, [&](world::World& world) {
      Small net, alone;
      const MasterWeights masters(net, world.group());
      alone.to(torch::kBFloat16);
      auto replicas = data_parallel(net, world.group(),
                                    {.average = Average::kSum,
                                     .bucket_bytes = 64,
                                     .num_grains = num_grains,
                                     .gradient_dtype = at::kFloat});
      const int64_t begin = 3 * world.rank();
      for (int step = 0; step < 2; ++step) {
        for (int64_t i = begin; i < begin + 3; ++i) {
          if (num_grains > 0) {
            replicas.grain(i);
            net.loss(i).backward();
          } else if (i + 1 < begin + 3) {
            const auto guard = replicas.accumulate();
            net.loss(i).backward();
          } else {
            net.loss(i).backward();
          }
        }
        std::vector<at::Tensor> sums(net.parameters().size());
        for (int64_t i = 0; i < 6; ++i) {
          alone.zero_grad();
          alone.loss(i).backward();
          for (size_t p = 0; p < sums.size(); ++p) {
            const at::Tensor g = alone.parameters()[p].grad().to(torch::kFloat64);
            sums[p] = i == 0 ? g : sums[p] + g;
          }
        }
        const auto slots = replicas.gradient_slots();
        for (size_t p = 0; p < sums.size(); ++p) {
          EXPECT_EQ(slots[p].scalar_type(), at::kFloat);
          EXPECT_FALSE(net.parameters()[p].grad().defined());
          // Six terms of at most this size, added in float32.
          const double size = 1 + sums[p].abs().max().item<double>();
          EXPECT_LT((slots[p] - sums[p]).abs().max().item<double>(), 6 * 6 * size * 0x1p-24);
        }
      }
    });
  }
}

TEST(MixedPrecision, MastersLearnWhatBf16WouldLose) {
  test::run_ranks(2, [](world::World& world) {
    Small net(world.rank());  // rank 0's values count
    MasterWeights masters(net, world.group());
    EXPECT_TRUE(at::equal(net.scale, torch::full({3}, 1 + 0x1p-20F))) << "buffers stay wide";
    EXPECT_EQ(net.linear->weight.scalar_type(), at::kBFloat16);
    auto replicas = data_parallel(net, world.group(), {.gradient_dtype = at::kFloat});
    const auto optimizer = flat_sgd(
        masters.part(replicas.buckets().flat, replicas.flat_gradients(), decay_matrices(0)));
    const at::Tensor before = masters.values()[0].tensor.clone();
    const Small first;
    EXPECT_TRUE(at::equal(before, first.linear->weight.detach()));
    for (int step = 0; step < 3; ++step) {
      net.loss(world.rank()).backward();
      optimizer->step(1e-4, 1.0);  // far below a unit of the last place of bfloat16
      masters.publish();
    }
    EXPECT_FALSE(at::equal(masters.values()[0].tensor, before));
    EXPECT_TRUE(at::equal(net.linear->weight, masters.values()[0].tensor.to(torch::kBFloat16)));
    replicas.check_parameters();
  });
  test::run_ranks(1, [](world::World& world) {
    Small net;
    EXPECT_THROW(MasterWeights(net, world.group(), {.parameters = at::kInt}), Error);
    EXPECT_THROW(data_parallel(net, world.group(), {.gradient_dtype = at::kInt}), Error);
  });
}

TEST(MovingAverage, FollowsAndIsAppliedForAWhile) {
  const at::Tensor weight = torch::zeros({3}).requires_grad_();
  MovingAverage average({{"weight", weight}}, .75);
  for (int step = 1; step <= 3; ++step) {
    weight.detach().fill_(step);
    average.update();
  }
  // .75 * (.75 * .25 + .25 * 2) + .25 * 3
  EXPECT_TRUE(at::equal(average.averages()[0].tensor, torch::full({3}, 1.265625F)));
  {
    const auto applied = average.apply();
    EXPECT_EQ(weight[1].item<float>(), 1.265625F);
  }
  EXPECT_EQ(weight[1].item<float>(), 3);
  EXPECT_THROW(MovingAverage({}, 1.0), Error);
}

TEST(StochasticRounding, IsExactOnAverageAndTheSameInParts) {
  constexpr int64_t kCount = 1 << 16;
  const at::Tensor from = torch::full({kCount}, 1 + 0x1p-10F);  // 1/8 of the way to 1 + 2^-7
  const at::Tensor to = torch::zeros({kCount}, torch::kBFloat16);
  round_stochastically(from, to, 5);
  const double up = (to.to(torch::kFloat64) - 1).mean().item<double>() / 0x1p-7;
  EXPECT_NEAR(up, .125, 5 * std::sqrt(.125 * .875 / kCount));
  const at::Tensor parts = torch::zeros({kCount}, torch::kBFloat16);
  for (const int64_t begin : {0, 1003}) {
    const int64_t end = begin == 0 ? 1003 : kCount;
    round_stochastically(from.slice(0, begin, end), parts.slice(0, begin, end), 5, begin);
  }
  EXPECT_TRUE(at::equal(parts, to));
  round_stochastically(from, parts, 6);
  EXPECT_FALSE(at::equal(parts, to));
}

TEST(StochasticRounding, KeepsWhatIsExactOrNoNumber) {
  const float inf = std::numeric_limits<float>::infinity();
  const at::Tensor from = torch::tensor({1.5F, -0.0F, inf, -inf, NAN, -3.0F});
  const at::Tensor to = torch::zeros({6}, torch::kBFloat16);
  round_stochastically(from, to, 1);
  EXPECT_TRUE(at::allclose(to.to(torch::kFloat), from, 0, 0, /*equal_nan=*/true));
  EXPECT_THROW(round_stochastically(from, from, 1), Error);
}

TEST(StochasticRounding, SmallUpdatesOfBf16ParametersAreNotLost) {
  constexpr int64_t kCount = 4096;
  const at::Tensor values = torch::ones({kCount}, torch::kBFloat16);
  const at::Tensor gradients = torch::ones({kCount}, torch::kBFloat16);
  const std::vector<NamedParameter> parameters{{"w", values}};
  const FlatPart part{values, gradients,
                      flat_pieces(parameters, layout::flat_layout(std::vector<int64_t>{kCount}),
                                  {0, kCount}, decay_matrices(0))};
  const auto optimizer = flat_stochastic(
      part, [](FlatPart wide, const SumOverParts&) { return flat_sgd(std::move(wide)); }, 3);
  // Half a unit of the last place below 1 is 2^-9: 100 updates of 2^-12 would all be lost.
  for (int step = 0; step < 100; ++step) optimizer->step(0x1p-12, 1.0);
  const double moved = 1 - values.to(torch::kFloat64).mean().item<double>();
  const double expected = 100 * 0x1p-12;
  // Each step's rounding has a deviation below 2^-8 / 2 per element.
  EXPECT_NEAR(moved, expected, 5 * 0x1p-9 * std::sqrt(100.0 / kCount));
  EXPECT_EQ(optimizer->num_updates(), 100);
}

}  // namespace
}  // namespace hanji::parallel
