#include "hanji/parallel/grad_norm.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include <cmath>
#include <vector>

#include "hanji/base/status.h"

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

std::vector<at::Tensor> with_gradients(at::ScalarType dtype) {
  std::vector<at::Tensor> parameters;
  for (const double value : {3.0, 4.0}) {
    parameters.push_back(torch::zeros({1}, dtype).requires_grad_());
    parameters.back().mutable_grad() = torch::full({1}, value, dtype);
  }
  parameters.push_back(torch::zeros({2}, dtype).requires_grad_());  // unused
  return parameters;
}

TEST(ClipGradNorm, ScalesAllGradientsByOneNormInEveryDtype) {
  for (const auto dtype : {at::kFloat, at::kDouble, at::kBFloat16}) {
    const auto parameters = with_gradients(dtype);
    EXPECT_EQ(clip_grad_norm(parameters, 2.5), 5.0) << dtype;
    // 3 / ((5 + 1e-6) / 2.5), rounded to 8 bits of significand at worst.
    EXPECT_NEAR(parameters[0].grad().item<double>(), 1.5, 1.5 / 256) << dtype;
    EXPECT_NEAR(parameters[1].grad().item<double>(), 2.0, 2.0 / 256) << dtype;
    EXPECT_FALSE(parameters[2].grad().defined());
  }
}

TEST(ClipGradNorm, LeavesSmallAndBrokenGradientsAlone) {
  auto parameters = with_gradients(at::kFloat);
  EXPECT_EQ(clip_grad_norm(parameters, 5.0 + 1e-3), 5.0);
  EXPECT_EQ(clip_grad_norm(parameters, 0.0), 5.0);
  EXPECT_EQ(parameters[0].grad().item<float>(), 3.0f);
  parameters[1].mutable_grad().fill_(INFINITY);
  EXPECT_TRUE(std::isinf(clip_grad_norm(parameters, 1.0)));
  EXPECT_EQ(parameters[0].grad().item<float>(), 3.0f);
}

TEST(ClipGradNorm, HasTheBitsOfTheNormOnFlatBuffers) {
  const at::Tensor values = torch::randn({3000});
  auto parameter = torch::zeros({3000}).requires_grad_();
  parameter.mutable_grad() = values.clone();
  const auto layout = layout::flat_layout(std::vector<int64_t>{3000});
  at::Tensor flat = torch::zeros({layout.count});
  flat.slice(0, 0, 3000).copy_(values);
  EXPECT_EQ(clip_grad_norm(std::vector<at::Tensor>{parameter}, 1e9), grad_norm(flat, layout));
}

TEST(ClipGradNorm, CountsAndScalesATiedWeightOnce) {
  auto parameters = with_gradients(torch::kFloat);
  parameters.push_back(parameters[1]);
  EXPECT_EQ(clip_grad_norm(parameters, 2.5), 5.0);
  EXPECT_NEAR(parameters[1].grad().item<float>(), 2.0, 1e-5);
  EXPECT_EQ(distinct_gradients(parameters).size(), 2);
}

TEST(ClipGradNorm, RefusesSparseGradientsBeforeItScalesAny) {
  auto parameters = with_gradients(at::kFloat);
  parameters[1].mutable_grad() = torch::ones({1}).to_sparse();
  EXPECT_THROW(clip_grad_norm(parameters, 1.0), Error);
  EXPECT_EQ(parameters[0].grad().item<float>(), 3.0f);
}

TEST(ClipDivisor, BringsALargeNormDownAndLeavesASmallOne) {
  EXPECT_EQ(clip_divisor(4.0, 1.0), 4.000001);
  EXPECT_EQ(clip_divisor(0.5, 1.0), 1.0);
  EXPECT_EQ(clip_divisor(4.0, 0.0), 1.0);
}

}  // namespace
}  // namespace hanji::parallel
