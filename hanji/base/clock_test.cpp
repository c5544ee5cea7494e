#include "hanji/base/clock.h"

#include <gmock/gmock.h>
#include <time.h>

#include <thread>

namespace hanji::base {
namespace {

using namespace std::chrono_literals;

TEST(Clock, MonotonicTimeGoesOnWithSleep) {
  const int64_t before = now_ns();
  std::this_thread::sleep_for(2ms);
  EXPECT_GE(now_ns() - before, 2'000'000);
}

TEST(Clock, WallTimeIsTheSystems) {
  const int64_t before = ::time(nullptr);
  const int64_t now = wall_ns();
  EXPECT_GE(now, (before - 1) * 1'000'000'000);  // time() may lag by a tick
  EXPECT_LE(now, (::time(nullptr) + 2) * 1'000'000'000);
}

TEST(Deadline, PassesAfterItsTime) {
  const Deadline deadline = Deadline::after(5ms);
  EXPECT_LE(deadline.remaining(), 5ms);
  std::this_thread::sleep_for(6ms);
  EXPECT_TRUE(deadline.passed());
  EXPECT_EQ(deadline.remaining(), 0ns);
  EXPECT_EQ(deadline.poll_ms(), 0);
}

TEST(Deadline, PollRoundsUpSoThatItNeverSpins) {
  const Deadline deadline = Deadline::after(1h);
  EXPECT_GT(deadline.poll_ms(), 3'500'000);
  EXPECT_LE(deadline.poll_ms(), 3'600'000);
  EXPECT_EQ(Deadline::after(std::chrono::hours(20)).poll_ms(), 3'600'000);
}

TEST(Deadline, NegativeHasPassedAndHugeNeverPasses) {
  EXPECT_TRUE(Deadline::after(-1s).passed());
  EXPECT_TRUE(Deadline::after(std::chrono::nanoseconds::min()).passed());
  EXPECT_FALSE(Deadline::after(std::chrono::nanoseconds::max()).passed());
  EXPECT_EQ(Deadline::after(std::chrono::nanoseconds::max()).remaining(),
            std::chrono::nanoseconds::max());
  EXPECT_FALSE(Deadline::never().passed());
  EXPECT_EQ(Deadline::never().poll_ms(), 3'600'000);
}

}  // namespace
}  // namespace hanji::base
