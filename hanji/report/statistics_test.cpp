#include "hanji/report/statistics.h"

#include <gmock/gmock.h>

#include <numeric>

namespace hanji::report {
namespace {

std::vector<double> one_to(int last) {
  std::vector<double> values(last);
  std::iota(values.rbegin(), values.rend(), 1.0);
  return values;
}

TEST(Statistics, MedianIsTheMiddleOrTheMeanOfTheTwoThere) {
  EXPECT_EQ(median({3, 1, 2}), 2);
  EXPECT_EQ(median({4, 1, 3, 2}), 2.5);
  EXPECT_EQ(median({7}), 7);
}

TEST(Statistics, QuantileIsAValueThatWasSeen) {
  EXPECT_EQ(quantile(one_to(100), .99), 99);
  EXPECT_EQ(quantile(one_to(100), .5), 50);
  EXPECT_EQ(quantile(one_to(3), .99), 3);
  EXPECT_EQ(quantile({5}, 0), 5);
}

// Table A3 of the source for n = 30: the 10th and the 21st value, 95.7 %; for n = 6 the outermost.
TEST(Statistics, IntervalsAreThoseOfTheTable) {
  const Interval thirty = median_interval(one_to(30));
  EXPECT_EQ(thirty.low, 10);
  EXPECT_EQ(thirty.high, 21);
  EXPECT_NEAR(thirty.confidence, .9572, 1e-3);
  const Interval six = median_interval(one_to(6));
  EXPECT_EQ(six.low, 1);
  EXPECT_EQ(six.high, 6);
  EXPECT_NEAR(six.confidence, 1 - 2.0 / 64, 1e-12);
}

TEST(Statistics, FewValuesGiveAllAndSaySo) {
  const Interval two = median_interval({2, 1});
  EXPECT_EQ(two.low, 1);
  EXPECT_EQ(two.high, 2);
  EXPECT_EQ(two.confidence, .5);
  EXPECT_EQ(median_interval({1}).confidence, 0);
}

TEST(Statistics, SignTestCountsBothTails) {
  EXPECT_NEAR(sign_test(6, 0), 2.0 / 64, 1e-12);
  EXPECT_NEAR(sign_test(0, 6), 2.0 / 64, 1e-12);
  EXPECT_NEAR(sign_test(8, 2), 2 * 56.0 / 1024, 1e-12);
  EXPECT_EQ(sign_test(5, 5), 1);
  EXPECT_EQ(sign_test(0, 0), 1);
  EXPECT_GT(sign_test(600, 400), 0);
}

}  // namespace
}  // namespace hanji::report
