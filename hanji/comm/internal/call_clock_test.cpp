#include "hanji/comm/internal/call_clock.h"

#include <gtest/gtest.h>

#include "hanji/comm/internal/record.h"
#include "hanji/comm/internal/test_ranks.h"

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

TEST(CallClock, PartsOfACallAreEventsOfTheThreadThatHadThem) {
  const auto segment = internal::make_segment(1);
  trace::Recorder recorder = trace::Recorder::format(segment->trace_memory(0), 0, 1, 16);
  const Request request{.routine = schedule::Routine::kAllReduce};
  record_parts(&recorder, request,
               {.skew_ns = 10'000, .arrived_ns = 20'000, .exposed_ns = 50'000, .end_ns = 90'000});
  record_parts(
      &recorder, request,
      {.skew_ns = 100'000, .arrived_ns = 100'000, .exposed_ns = 100'000, .end_ns = 100'200});
  const auto events = recorder.events();
  ASSERT_EQ(events.size(), 3u);  // what is shorter than half a microsecond is left out
  EXPECT_EQ(events[0].category, trace::Category::kSkew);
  EXPECT_EQ(recorder.name(events[0].name), "waiting for other ranks");
  EXPECT_EQ(events[1].category, trace::Category::kTransfer);
  EXPECT_EQ(events[1].lane, trace::Lane::kCommunication);
  EXPECT_EQ(recorder.name(events[1].name), "all_reduce");
  EXPECT_EQ(events[2].lane, trace::Lane::kMain);
  EXPECT_EQ(events[2].start_ns, 50'000);
  EXPECT_EQ(events[2].end_ns, 90'000);
}

}  // namespace
}  // namespace hanji::comm
