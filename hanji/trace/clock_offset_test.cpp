#include "hanji/trace/clock_offset.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace hanji::trace {
namespace {

TEST(ClockOffset, IsThatOfTheShortestWayAndNeverWrongByMoreThanHalfOfIt) {
  std::mt19937_64 random(1);
  std::exponential_distribution<double> queue(1.0 / 40'000);
  for (int run = 0; run < 200; ++run) {
    constexpr int64_t kTruth = 5'000'000'000;
    std::vector<ClockSample> samples;
    int64_t now = 1'000'000;
    for (int i = 0; i < 32; ++i) {
      ClockSample one{.t0 = now};
      one.t1 = one.t0 + kTruth + 50'000 + std::llround(queue(random));
      one.t2 = one.t1 + 3'000;
      one.t3 = one.t2 - kTruth + 20'000 + std::llround(queue(random));  // the way back is shorter
      now = one.t3 + 1'000;
      samples.push_back(one);
    }
    const auto reading = read_clock(samples);
    ASSERT_TRUE(reading);
    EXPECT_LE(std::abs(reading->offset_ns - kTruth), reading->error_ns);
    EXPECT_LT(reading->error_ns, 100'000);
  }
  EXPECT_FALSE(read_clock({}));
}

TEST(ClockOffset, FollowsAnEvenDriftBetweenTwoReadings) {
  // 50 ppm: 3 ms a minute.
  const ClockReading begin{.at_ns = 0, .offset_ns = 1'000'000, .error_ns = 10};
  const ClockReading end{.at_ns = 60'000'000'000, .offset_ns = 4'000'000, .error_ns = 30};
  const ClockOffset offset(begin, end);
  EXPECT_NEAR(offset.drift_ppm(), 50, 1e-6);
  EXPECT_EQ(offset.error_ns(), 30);
  EXPECT_EQ(offset.convert(0), 1'000'000);
  EXPECT_EQ(offset.convert(30'000'000'000), 30'002'500'000);
  EXPECT_EQ(offset.convert(60'000'000'000), 60'004'000'000);
}

TEST(ClockOffset, OfTheOwnClockIsNone) {
  EXPECT_TRUE(ClockOffset().is_own());
  EXPECT_EQ(ClockOffset().convert(42), 42);
  EXPECT_EQ(ClockOffset(ClockReading{.at_ns = 7, .offset_ns = 3}).convert(42), 45);
}

}  // namespace
}  // namespace hanji::trace
