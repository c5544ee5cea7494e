#include "hanji/parallel/grad_norm.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>

namespace hanji::parallel {
namespace {

TEST(GradNorm, IsTheNormOfAllParametersAndReadsNoPadding) {
  const layout::FlatLayout layout = layout::flat_layout(std::vector<int64_t>{3, 2});
  const at::Tensor flat = torch::full({layout.count}, 100.0f);
  flat.slice(0, 0, 3).fill_(2);
  flat.slice(0, layout.offsets[1], layout.offsets[1] + 2).fill_(std::sqrt(2.0));
  EXPECT_NEAR(grad_norm(flat, layout), 4.0, 1e-6);  // sqrt(2) rounds to float32 once
}

TEST(GradNorm, HasTheSameBitsWhereverAParameterLies) {
  const at::Tensor values = torch::randn({5000});
  const auto small = layout::flat_layout(std::vector<int64_t>{5000, 1}, 64);
  const auto large = layout::flat_layout(std::vector<int64_t>{5000, 1}, 4096);
  const auto place = [&](const layout::FlatLayout& layout) {
    at::Tensor flat = torch::zeros({layout.count});
    flat.slice(0, layout.offsets[0], layout.offsets[0] + 5000).copy_(values);
    return grad_norm(flat, layout);
  };
  EXPECT_EQ(place(small), place(large));
}

TEST(GradNorm, IsNotFiniteWhereAGradientIsNot) {
  const auto layout = layout::flat_layout(std::vector<int64_t>{70});
  const at::Tensor flat = torch::zeros({layout.count});
  flat[69] = NAN;
  EXPECT_TRUE(std::isnan(grad_norm(flat, layout)));
}

TEST(ClipDivisor, BringsALargeNormDownAndLeavesASmallOne) {
  EXPECT_EQ(clip_divisor(4.0, 1.0), 4.000001);
  EXPECT_EQ(clip_divisor(0.5, 1.0), 1.0);
  EXPECT_EQ(clip_divisor(4.0, 0.0), 1.0);
}

}  // namespace
}  // namespace hanji::parallel
