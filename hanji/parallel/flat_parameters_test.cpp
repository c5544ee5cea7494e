#include "hanji/parallel/flat_parameters.h"

#include <gtest/gtest.h>
#include <torch/types.h>

namespace hanji::parallel {
namespace {

struct Fixture {
  std::vector<at::Tensor> parameters{torch::arange(6, torch::kFloat64).view({2, 3}).sin(),
                                     torch::ones({5}, torch::kFloat64)};
  layout::FlatLayout layout = layout::flat_layout(std::vector<int64_t>{6, 5});
  at::Tensor flat = torch::zeros({layout.count}, torch::kFloat64);

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

}  // namespace
}  // namespace hanji::parallel
