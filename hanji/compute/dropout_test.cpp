#include "hanji/compute/dropout.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <bit>
#include <cmath>

#include "hanji/base/random.h"
#include "hanji/base/status.h"
#include "hanji/compute/internal/philox_tensors.h"

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

/// Parts of 4, 1 and 4 along `dim`, each by itself.
std::vector<at::Tensor> in_parts(const at::Tensor& x, int64_t dim, const DropoutKey& key) {
  std::vector<at::Tensor> parts;
  int64_t begin = 0;
  for (const at::Tensor& part : x.split_with_sizes({4, 1, x.size(dim) - 5}, dim)) {
    DropoutKey own = key;
    own.part = {dim, begin, x.size(dim)};
    parts.push_back(dropout(part, kProbability, own));
    begin += part.size(dim);
  }
  return parts;
}

TEST(Dropout, OfPartsIsThatOfTheWholeInBothDirections) {
  const DropoutKey key{5, 7, 10, 2, {}};
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kDouble}) {
    for (const auto& [sizes, dim] : std::vector<std::pair<std::vector<int64_t>, int64_t>>{
             {{2, 9, 7, 7}, 1}, {{2, 9, 33}, -2}, {{2, 5, 33}, -1}, {{2, 9}, 1}}) {
      const auto x = at::rand(sizes).to(type).requires_grad_();
      const auto y = x.detach().clone().requires_grad_();
      const auto whole = dropout(x, kProbability, key);
      const auto parts = at::cat(in_parts(y, dim, key), dim);
      EXPECT_TRUE(at::equal(whole, parts)) << type << ", along " << dim;
      whole.sum().backward();
      parts.sum().backward();
      EXPECT_TRUE(at::equal(x.grad(), y.grad())) << type << ", along " << dim;
    }
  }
}

TEST(Dropout, ByOperationsOfADeviceHasTheBitsOfTheHosts) {
  const DropoutKey keys[] = {{5, 7, 10, 2, {}},
                             {~uint64_t{0}, 1 << 30, 3, 77, {}},
                             {5, 7, 10, 2, {2, 3, 40}},
                             {5, 7, 10, 2, {-2, 1, 17}}};
  for (const DropoutKey& key : keys) {
    for (const double probability : {0.1, 0.5, 1 - 0x1p-33}) {
      for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kDouble}) {
        const at::TensorOptions options(type);
        const auto expected = dropout_mask({3, 9, 33}, probability, key, options);
        const auto found = internal::mask_by_operations({3, 9, 33}, probability, key, options);
        EXPECT_TRUE(at::equal(expected, found)) << key.part.dim << ", " << probability;
      }
    }
  }
}

TEST(Dropout, ByOperationsIsDividedWithoutATrace) {
  constexpr int64_t kElements = (int64_t{5} << 20) + 3;  // more draws than are made at once
  const DropoutKey key{1, 2, 3, 4, {}};
  const auto expected = dropout_mask({2, kElements}, 0.3, key, at::TensorOptions(at::kFloat));
  EXPECT_TRUE(at::equal(
      expected, internal::mask_by_operations({2, kElements}, 0.3, key, expected.options())));
}

TEST(Dropout, ByOperationsDrawsTheWordsOfEveryKeyAndCounter) {
  const uint64_t values[] = {0, 1, 0xFFFFFFFF, uint64_t{1} << 32, 0x9E3779B97F4A7C15, ~uint64_t{0}};
  const auto number = [](uint64_t value) {
    return at::full({1}, std::bit_cast<int64_t>(value), at::kLong);
  };
  for (const uint64_t key : values) {
    for (const uint64_t counter : values) {
      const auto expected = base::Philox::draw(key, ~counter, counter);
      const auto found = internal::philox_words(number(key), ~counter, number(counter));
      for (size_t i = 0; i < 4; ++i) EXPECT_EQ(found[i].item<int64_t>(), expected[i]);
      EXPECT_EQ(std::bit_cast<uint64_t>(internal::mixed(key, number(counter)).item<int64_t>()),
                base::mix(key, counter));
    }
  }
}

TEST(Dropout, RefusesAPartBeyondItsWholeOrAlongTheSamples) {
  const auto x = at::ones({2, 9, 33});
  for (const DropoutPart& part : {DropoutPart{1, 1, 9}, {0, 0, 2}, {3, 0, 9}, {-1, -1, 33}}) {
    EXPECT_THROW(dropout(x, kProbability, {5, 7, 10, 2, part}), Error);
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
