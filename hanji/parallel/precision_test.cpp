// Loss scaling, moving averages and stochastic rounding.
#include <gmock/gmock.h>
#include <torch/torch.h>

#include <cmath>
#include <limits>

#include "hanji/base/status.h"
#include "hanji/parallel/loss_scaler.h"
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
    EXPECT_TRUE(scaler.unscale_of(std::vector<at::Tensor>{used, unused}));
    EXPECT_TRUE(at::equal(used.grad(), torch::full({2}, 3.0F)));
    EXPECT_THROW(LossScaler(world.group(), {.backoff = 1}), Error);
    EXPECT_THROW(scaler.set(0, 0), Error);
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
