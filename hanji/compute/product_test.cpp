#include "hanji/compute/product.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gmock/gmock.h>

#include <cmath>

#include "hanji/compute/apply.h"
#include "hanji/compute/linear.h"

namespace hanji::compute {
namespace {

using base::WeightGradient;

at::Tensor factor(at::IntArrayRef sizes, double step) {
  const int64_t count = c10::multiply_integers(sizes);
  return at::sin(at::arange(count, at::kDouble).mul(step)).view(sizes).to(at::kBFloat16);
}

/// g^T x in float32, of rows that lie `beside` elements apart and begin `first` elements behind a line.
at::Tensor gradient_of(const at::Tensor& g, const at::Tensor& x, int64_t first = 0,
                       int64_t beside = 0) {
  const auto placed = [&](const at::Tensor& of) {
    const int64_t rows = of.size(0), row = of.size(1) + beside;
    const at::Tensor there = at::zeros({first + rows * row}, of.options())
                                 .narrow(0, first, rows * row)
                                 .view({rows, row})
                                 .narrow(1, 0, of.size(1));
    there.copy_(of);
    return there;
  };
  const at::Tensor out = placed(at::full({g.size(1), x.size(1)}, NAN));
  product_out(out, placed(g).t(), placed(x));
  return out.contiguous();
}

double error_of(const at::Tensor& gradient, const at::Tensor& g, const at::Tensor& x) {
  const at::Tensor exact = g.to(at::kDouble).t().mm(x.to(at::kDouble));
  return ((gradient.to(at::kDouble) - exact).abs().max() / exact.abs().max()).item<double>();
}

struct FloatSums : testing::Test {
  void SetUp() override {
    if (!has_float32_results()) GTEST_SKIP() << "this libtorch is not built on MKL";
    applied.emplace(base::KernelChoice{.weight_gradient = WeightGradient::kFloat32}, 1);
  }
  const at::Tensor g = factor({512, 96}, 0.7), x = factor({512, 65}, 1.3);
  std::optional<AppliedForAWhile> applied;
};

/// A bf16 result is off by up to 2^-9 of itself; float32 sums of 512 terms by 512 roundings of 2^-24 of the terms.
TEST_F(FloatSums, AreNotRoundedToBf16) {
  EXPECT_LT(error_of(gradient_of(g, x), g, x), 512 * std::ldexp(1.0, -24));
  use_weight_gradient(WeightGradient::kRounded);
  EXPECT_GT(error_of(gradient_of(g, x), g, x), std::ldexp(1.0, -11));
}

TEST_F(FloatSums, HaveTheSameBitsWhereverTheyLieOnAnyThreads) {
  const at::Tensor expected = gradient_of(g, x);
  for (const int threads : {1, 2, 3}) {
    at::set_num_threads(threads);
    for (const int64_t first : {0, 1, 8}) {
      for (const int64_t beside : {0, 1, 8}) {
        EXPECT_TRUE(at::equal(gradient_of(g, x, first, beside), expected))
            << threads << " threads, " << first << " elements behind, " << beside << " beside";
      }
    }
  }
  EXPECT_TRUE(at::equal(gradient_of(g.slice(1, 32), x), expected.slice(0, 32)));
}

/// A vector, a row, and a tensor that no BLAS takes.
TEST_F(FloatSums, TakeEveryShape) {
  for (const auto& [left, right] : {std::pair(g.slice(1, 0, 1), x), std::pair(g, x.slice(1, 0, 1)),
                                    std::pair(g.slice(0, 0, 1), x.slice(0, 0, 1)),
                                    std::pair(g.slice(1, 0, 96, 2), x.slice(1, 0, 65, 3))}) {
    const at::Tensor out = at::full({left.size(1), right.size(1)}, NAN);
    product_out(out, left.t(), right);
    EXPECT_LT(error_of(out, left, right), std::ldexp(1.0, -8));
  }
}

/// Into its slot, into new memory where .grad is there already, and added to it.
TEST_F(FloatSums, AreWhatLinearGivesItsWeight) {
  const at::Tensor value = factor({96, 65}, 0.3).to(at::kFloat).set_requires_grad(true);
  const at::Tensor slot = at::zeros({96, 65});
  const auto backward = [&] { linear(x, {value, slot}).backward(g); };
  backward();
  EXPECT_EQ(value.grad().data_ptr(), slot.data_ptr());
  EXPECT_TRUE(at::equal(slot, gradient_of(g, x)));
  backward();
  EXPECT_TRUE(at::equal(value.grad(), 2 * gradient_of(g, x)));
}

TEST(Product, OfOneDtypeIsThatOfLibtorch) {
  const at::Tensor left = factor({32, 48}, 0.7), right = factor({48, 64}, 1.1);
  for (const at::ScalarType type : {at::kBFloat16, at::kFloat, at::kDouble}) {
    const at::Tensor out = at::empty({32, 64}, type);
    product_out(out, left.to(type), right.to(type));
    EXPECT_TRUE(at::equal(out, left.to(type).mm(right.to(type))));
  }
}

TEST(Product, RoundsUnlessItIsToldNotTo) {
  EXPECT_EQ(weight_gradient_in_use(), WeightGradient::kRounded);
  const at::Tensor g = factor({512, 96}, 0.7), x = factor({512, 65}, 1.3);
  EXPECT_TRUE(at::equal(gradient_of(g, x), g.t().mm(x).to(at::kFloat)));
}

TEST(Product, WhatIsAppliedForAWhileEndsWithIt) {
  if (!has_float32_results()) GTEST_SKIP() << "this libtorch is not built on MKL";
  {
    const AppliedForAWhile applied({.weight_gradient = WeightGradient::kFloat32}, 1);
    EXPECT_EQ(weight_gradient_in_use(), WeightGradient::kFloat32);
  }
  EXPECT_EQ(weight_gradient_in_use(), WeightGradient::kRounded);
}

}  // namespace
}  // namespace hanji::compute
