#include "hanji/cost/measure.h"

#include <gtest/gtest.h>

#include "hanji/cost/compute_share.h"

namespace hanji::cost {
namespace {

// Bounds that hold for any machine that runs the tests, however loaded.
void expect_plausible(const Rates& rates) {
  EXPECT_GT(rates.memory_bytes_per_second, 1e7);
  EXPECT_LT(rates.memory_bytes_per_second, 1e13);
  EXPECT_GE(rates.cached_bytes_per_second, rates.memory_bytes_per_second);
  EXPECT_GT(rates.copy_bytes_per_second, 1e7);
  EXPECT_LT(rates.copy_bytes_per_second, 1e13);
  EXPECT_GT(rates.sync_seconds, 1e-9);
  EXPECT_LT(rates.sync_seconds, 1.0);
}

TEST(MeasureRates, AreThoseOfAMachine) {
  for (const int ranks : {1, 2, 3}) {
    const auto rates = measure_rates({ranks, 2, int64_t{4} << 20, {}});
    ASSERT_TRUE(rates.ok()) << rates.status().message();
    expect_plausible(*rates);
    EXPECT_EQ(rates->cache_bytes, int64_t{4} << 20);
  }
}

TEST(MeasureRates, MeetingSomeoneTakesLongerThanMeetingNobody) {
  const auto alone = measure_rates({1, 2, 1, {}});
  const auto together = measure_rates({4, 2, 1, {}});
  ASSERT_TRUE(alone.ok() && together.ok());
  EXPECT_GT(together->sync_seconds, alone->sync_seconds);
}

TEST(MeasureRates, RanksOfOneCpuShareIt) {
  const auto eighth = measure_compute_share({8, 1, 1, std::vector<std::vector<int>>(8, {0})});
  ASSERT_TRUE(eighth.ok()) << eighth.status().message();
  EXPECT_LT(*eighth, 0.7) << "an eighth, or more where others leave one rank alone no whole CPU";
  EXPECT_EQ(measure_compute_share({1, 1, 1, {}}).or_throw(), 1);
}

TEST(MeasureRates, RefusesNoRanks) {
  EXPECT_FALSE(measure_compute_share({0, 1, 1, {}}).ok());
  EXPECT_EQ(measure_rates({0, 1, 1, {}}).status().code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace hanji::cost
