#include "hanji/data/order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <vector>

#include "hanji/base/simd.h"

namespace hanji::data {
namespace {

std::vector<int64_t> values(uint64_t seed, uint64_t epoch, int64_t count) {
  const Permutation order(seed, epoch, count);
  std::vector<int64_t> out;
  for (int64_t i = 0; i < count; ++i) out.push_back(order(i));
  return out;
}

class PermutationOf : public testing::TestWithParam<int64_t> {};

TEST_P(PermutationOf, MeetsEverySampleOnce) {
  const int64_t count = GetParam();
  std::vector<bool> met(static_cast<size_t>(count), false);
  for (const int64_t sample : values(7, 3, count)) {
    ASSERT_GE(sample, 0);
    ASSERT_LT(sample, count);
    ASSERT_FALSE(met[static_cast<size_t>(sample)]);
    met[static_cast<size_t>(sample)] = true;
  }
}

TEST_P(PermutationOf, ManyAtOnceAreThoseOneByOneAtEveryVectorWidth) {
  const Permutation order(7, 3, GetParam());
  const std::vector<int64_t> expected = values(7, 3, GetParam());
  const base::Simd before = base::simd_in_use().or_throw();
  for (const base::Simd level : base::kSimdLevels) {
    if (!base::check_simd(level).ok()) continue;
    base::throw_if_error(base::use_simd(level));
    std::vector<int64_t> found(expected.size());
    order({0, GetParam()}, found.data());
    EXPECT_EQ(found, expected) << base::name_of(level);
    const int64_t begin = GetParam() / 3;
    order({begin, GetParam()}, found.data());
    EXPECT_TRUE(std::equal(expected.begin() + begin, expected.end(), found.begin()));
  }
  base::throw_if_error(base::use_simd(before));
}

INSTANTIATE_TEST_SUITE_P(Counts, PermutationOf,
                         testing::Values(1, 2, 3, 15, 16, 17, 255, 256, 257, 1021, 10007));

TEST(Permutation, DependsOnSeedAndEpoch) {
  EXPECT_EQ(values(1, 0, 100), values(1, 0, 100));
  EXPECT_NE(values(1, 0, 100), values(1, 1, 100));
  EXPECT_NE(values(1, 0, 100), values(2, 0, 100));
}

TEST(Permutation, GoldenValuesKeepOldRunsRepeatable) {
  const Permutation order(42, 1, 1000);
  const std::vector<int64_t> first = {order(0), order(1), order(2), order(999)};
  EXPECT_EQ(first, (std::vector<int64_t>{672, 155, 681, 877}));
}

TEST(Permutation, ReachesAllOrdersOfThree) {
  std::set<std::vector<int64_t>> orders;
  for (uint64_t seed = 0; seed < 100; ++seed) orders.insert(values(seed, 0, 3));
  EXPECT_EQ(orders.size(), 6u);
}

TEST(Permutation, SpreadsThePositions) {
  // The sample at a given position is uniform over seeds: 64 cells, 6400 draws, chi-squared with
  // 63 degrees of freedom exceeds 120 with probability below 2e-5 (and the seeds are fixed).
  std::vector<int> cells(64, 0);
  for (uint64_t seed = 0; seed < 6400; ++seed) ++cells[Permutation(seed, 0, 64)(5)];
  double chi_squared = 0;
  for (const int cell : cells) chi_squared += (cell - 100.0) * (cell - 100.0) / 100.0;
  EXPECT_LT(chi_squared, 120);
}

TEST(Permutation, ServesTheLargestCounts) {
  const int64_t count = INT64_MAX;
  const Permutation order(1, 0, count);
  std::set<int64_t> seen;
  for (int64_t i = count - 100; i < count; ++i) {
    const int64_t sample = order(i);
    EXPECT_GE(sample, 0);
    EXPECT_LT(sample, count);
    seen.insert(sample);
  }
  EXPECT_EQ(seen.size(), 100u);
  std::vector<int64_t> together(100);
  order({count - 100, count}, together.data());
  EXPECT_EQ(together[7], order(count - 93));
}

}  // namespace
}  // namespace hanji::data
