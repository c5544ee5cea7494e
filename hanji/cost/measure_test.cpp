#include "hanji/cost/measure.h"

#include <gtest/gtest.h>

#include "hanji/base/clock.h"
#include "hanji/test/cache_rate.h"

namespace hanji::cost {
namespace {

// What holds on any machine, however loaded: a sample fits into the time that measuring took, and no
// core reads and writes memory faster than its cache (twice: a clock may rise by less than that).
TEST(MeasureRates, NoSampleIsLongerThanMeasuringOrFasterThanACache) {
  constexpr int64_t kCache = int64_t{4} << 20;
  for (const int ranks : {1, 2, 3}) {
    const int64_t begin = base::now_ns();
    const auto rates = measure_rates({ranks, 2, kCache, {}});
    const double seconds = static_cast<double>(base::now_ns() - begin) * 1e-9;
    ASSERT_TRUE(rates.ok()) << rates.status().message();
    const double both_ways = 2 * 2 * test::cached_copy_rate();  // bytes read and written, each once
    EXPECT_LE(rates->memory_bytes_per_second, ranks * both_ways);
    EXPECT_LE(rates->cached_bytes_per_second, ranks * both_ways);
    EXPECT_LE(rates->copy_bytes_per_second, both_ways);
    EXPECT_GE(rates->cached_bytes_per_second, rates->memory_bytes_per_second);
    // Buffers of twice the cache, each byte read and written, in two of the phases; 20 syncs.
    const double bytes = 0.9 * 2 * 2 * kCache;  // slices are cut to whole floats of each rank
    EXPECT_LE(bytes / rates->memory_bytes_per_second + bytes / 2 / rates->copy_bytes_per_second +
                  20 * rates->sync_seconds,
              seconds);
    EXPECT_GT(rates->sync_seconds, 0);
    EXPECT_EQ(rates->cache_bytes, kCache);
  }
}

TEST(MeasureRates, MeetingSomeoneTakesLongerThanMeetingNobody) {
  const auto alone = measure_rates({1, 2, 1, {}});
  const auto together = measure_rates({4, 2, 1, {}});
  ASSERT_TRUE(alone.ok() && together.ok());
  EXPECT_GT(together->sync_seconds, alone->sync_seconds);
}

TEST(MeasureRates, RefusesNoRanks) {
  EXPECT_EQ(measure_rates({0, 1, 1, {}}).status().code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace hanji::cost
