#include "hanji/base/clock.h"

#include <time.h>

#include <algorithm>
#include <limits>

#include "hanji/base/run_clock.h"

namespace hanji::base {
namespace {

constexpr int64_t kNever = std::numeric_limits<int64_t>::max();
constexpr int64_t kMaxPollMs = 3'600'000;

int64_t read_clock(clockid_t clock) {
  timespec time{};
  ::clock_gettime(clock, &time);
  return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

}  // namespace

int64_t now_ns() { return read_clock(CLOCK_MONOTONIC); }
int64_t wall_ns() { return read_clock(CLOCK_REALTIME); }

Deadline Deadline::after(std::chrono::nanoseconds duration) {
  const int64_t now = running_ns();
  if (duration.count() >= kNever - now) return never();
  return Deadline(now + std::max<int64_t>(duration.count(), -now));
}

Deadline Deadline::never() { return Deadline(kNever); }

bool Deadline::passed() const { return at_ns_ != kNever && running_ns() >= at_ns_; }

std::chrono::nanoseconds Deadline::remaining() const {
  if (at_ns_ == kNever) return std::chrono::nanoseconds::max();
  return std::chrono::nanoseconds(std::max<int64_t>(0, at_ns_ - running_ns()));
}

int Deadline::poll_ms() const {
  const int64_t left = remaining().count();
  return static_cast<int>(std::min(kMaxPollMs, left / 1'000'000 + (left % 1'000'000 != 0)));
}

}  // namespace hanji::base
