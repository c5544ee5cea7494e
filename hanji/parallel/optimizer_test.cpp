#include "hanji/parallel/optimizer.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include "hanji/parallel/flat_parameters.h"

namespace hanji::parallel {
namespace {

struct Fixture {
  std::vector<at::Tensor> parameters{torch::arange(6, torch::kFloat64).view({2, 3}).sin(),
                                     torch::ones({5}, torch::kFloat64)};
  layout::FlatLayout layout = layout::flat_layout(std::vector<int64_t>{6, 5});
  at::Tensor flat = torch::zeros({layout.count}, torch::kFloat64);
  at::Tensor gradients = torch::zeros({layout.count}, torch::kFloat64);

  Fixture() { move_into_flat(parameters, layout, flat); }
};

TEST(MoveIntoFlat, EveryHandleSeesTheFlatTensor) {
  Fixture f;
  const at::Tensor other_handle = f.parameters[1];
  EXPECT_EQ(f.layout.offsets[1] % 64, 0);
  f.flat[f.layout.offsets[1] + 2] = 42;
  EXPECT_EQ(other_handle[2].item<double>(), 42);
  EXPECT_EQ(f.flat[1].item<double>(), std::sin(1.0));
}

TEST(MoveIntoFlat, RefusesAnotherSize) {
  Fixture f;
  const layout::FlatLayout other = layout::flat_layout(std::vector<int64_t>{6, 4});
  EXPECT_ANY_THROW(move_into_flat(f.parameters, other, f.flat));
}

TEST(FlatAdamW, FollowsTheFormulaForThreeSteps) {
  Fixture f;
  const AdamWOptions options{.beta1 = .9, .beta2 = .99, .epsilon = 1e-8, .weight_decay = .1};
  FlatAdamW optimizer(f.parameters, f.layout, f.gradients, options);
  double p = f.parameters[0][0][1].item<double>(), bias = 1, m = 0, v = 0;
  for (int t = 1; t <= 3; ++t) {
    const double gradient = .5 * t;
    f.gradients.fill_(2 * gradient);  // divided by 2 on the way
    optimizer.step(.01, 2.0);
    m = .9 * m + .1 * gradient;
    v = .99 * v + .01 * gradient * gradient;
    const double update =
        m / (1 - std::pow(.9, t)) / (std::sqrt(v / (1 - std::pow(.99, t))) + 1e-8);
    p = p * (1 - .01 * .1) - .01 * update;
    bias -= .01 * update;  // one dimension: no decay
  }
  // The kernel computes in double; the two orders of a dozen operations differ by a few 2^-53.
  EXPECT_NEAR(f.parameters[0][0][1].item<double>(), p, 1e-14);
  EXPECT_NEAR(f.parameters[1][4].item<double>(), bias, 1e-14);
  EXPECT_EQ(optimizer.num_updates(), 3);
}

}  // namespace
}  // namespace hanji::parallel
