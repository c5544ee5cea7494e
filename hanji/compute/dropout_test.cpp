#include "hanji/compute/dropout.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <cmath>

namespace hanji::compute {
namespace {

constexpr double kProbability = 0.25;

at::Tensor mask(int64_t batch, const DropoutKey& key) {
  return dropout_mask({batch, 9, 33}, kProbability, key, at::TensorOptions(at::kFloat));
}

TEST(Dropout, IsTheSameHoweverSamplesAreDivided) {
  const DropoutKey key{5, 7, 10, 2};
  const auto whole = mask(4, key);
  const auto parts = at::cat({mask(1, key), mask(3, {5, 7, 11, 2})});
  EXPECT_TRUE(at::equal(whole, parts));
}

TEST(Dropout, DependsOnEveryPartOfItsKey) {
  const auto base = mask(1, {5, 7, 10, 2});
  for (const DropoutKey& other :
       {DropoutKey{6, 7, 10, 2}, {5, 8, 10, 2}, {5, 7, 11, 2}, {5, 7, 10, 3}}) {
    EXPECT_FALSE(at::equal(base, mask(1, other)));
  }
}

TEST(Dropout, KeepsTheMean) {
  const auto m = dropout_mask({1, 40000}, kProbability, {}, at::TensorOptions(at::kFloat));
  // An element is 4/3 with probability 3/4: deviation sqrt(1/3), of the mean 1/200 of that.
  EXPECT_NEAR(m.mean().item<double>(), 1, 5 * std::sqrt(1.0 / 3) / 200);
}

TEST(Dropout, LeavesEverythingAtProbabilityZero) {
  auto x = at::ones({2, 3});
  EXPECT_EQ(dropout(x, 0, {}).data_ptr(), x.data_ptr());
}

}  // namespace
}  // namespace hanji::compute
