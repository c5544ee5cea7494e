#include "hanji/comm/internal/call_clock.h"

#include <gtest/gtest.h>

namespace hanji::comm {
namespace {

constexpr int64_t kHour = 3'600'000'000'000;

TEST(CallClock, WhatNobodyWaitsForIsHidden) {
  CallClock clock;
  const CallParts parts = clock.add(100, 300, 700);
  EXPECT_EQ(parts.skew_ns, parts.arrived_ns);
  EXPECT_EQ(parts.exposed_ns, parts.end_ns);
  EXPECT_EQ(clock.times().transfer_ns, 400);
  EXPECT_EQ(clock.times().exposed_ns, 0);
  EXPECT_EQ(clock.times().skew_ns, 0);
}

TEST(CallClock, AWaitSeesSkewUntilAllHaveCalledAndThenTransfer) {
  CallClock clock;
  clock.begin_wait();
  const int64_t now = base::now_ns();
  const CallParts parts = clock.add(now + kHour, now + 3 * kHour, now + 4 * kHour);
  EXPECT_EQ(parts.skew_ns, now + kHour);
  EXPECT_EQ(parts.arrived_ns, now + 3 * kHour);
  EXPECT_EQ(parts.exposed_ns, now + 3 * kHour);
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
  const CallParts parts = clock.add(now - 3 * kHour, now - kHour, now + kHour);
  EXPECT_LE(parts.exposed_ns, now);
  EXPECT_GT(parts.exposed_ns, now - 1'000'000'000);
  EXPECT_EQ(clock.times().skew_ns, 0);
  EXPECT_EQ(clock.times().transfer_ns, 2 * kHour);
}

}  // namespace
}  // namespace hanji::comm
