#include "hanji/comm/internal/call_clock.h"

#include <gtest/gtest.h>

namespace hanji::comm {
namespace {

constexpr int64_t kHour = 3'600'000'000'000;

TEST(CallClock, WhatNobodyWaitsForIsHidden) {
  CallClock clock;
  EXPECT_EQ(clock.add(100, 300, 700), 0);
  EXPECT_EQ(clock.times().transfer_ns, 400);
  EXPECT_EQ(clock.times().exposed_ns, 0);
  EXPECT_EQ(clock.times().skew_ns, 0);
}

TEST(CallClock, AWaitSeesSkewUntilAllHaveCalledAndThenTransfer) {
  CallClock clock;
  clock.begin_wait();
  const int64_t now = base::now_ns();
  EXPECT_EQ(clock.add(now + kHour, now + 3 * kHour, now + 4 * kHour), kHour);
  EXPECT_EQ(clock.times().skew_ns, 2 * kHour);
  EXPECT_EQ(clock.times().exposed_ns, kHour);
  clock.end_wait();
  clock.add(now + 4 * kHour, now + 5 * kHour, now + 6 * kHour);
  EXPECT_EQ(clock.times().skew_ns, 2 * kHour);
  EXPECT_EQ(clock.times().transfer_ns, 2 * kHour);
}

TEST(CallClock, WhatPassedBeforeTheWaitIsNotSeenByIt) {
  CallClock clock;
  clock.begin_wait();
  const int64_t now = base::now_ns();
  // The call began and all ranks called before the wait, which saw an hour of its transfer.
  const int64_t exposed = clock.add(now - 3 * kHour, now - kHour, now + kHour);
  EXPECT_GE(exposed, kHour);
  EXPECT_LT(exposed, kHour + 1'000'000'000);
  EXPECT_EQ(clock.times().skew_ns, 0);
  EXPECT_EQ(clock.times().transfer_ns, 2 * kHour);
}

}  // namespace
}  // namespace hanji::comm
