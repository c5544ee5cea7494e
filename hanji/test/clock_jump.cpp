// To be preloaded (LD_PRELOAD) into a program: its wall clock jumps by two days, forward and back,
// with every reading. The monotonic clocks stay as they are, as the kernel promises.
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include <atomic>

namespace {

constexpr time_t kTwoDays = 2 * 24 * 3600;

time_t jump() {
  static std::atomic<int> readings{0};
  const int phase = readings.fetch_add(1) % 3;
  return phase == 0 ? kTwoDays : phase == 1 ? -kTwoDays : 0;
}

}  // namespace

extern "C" {

int clock_gettime(clockid_t clock, timespec* now) noexcept {
  const auto result = static_cast<int>(::syscall(SYS_clock_gettime, clock, now));
  if (result == 0 && clock == CLOCK_REALTIME) now->tv_sec += jump();
  return result;
}

int gettimeofday(timeval* __restrict now, void* __restrict) noexcept {
  timespec time{};
  clock_gettime(CLOCK_REALTIME, &time);
  *now = {time.tv_sec, time.tv_nsec / 1000};
  return 0;
}

time_t time(time_t* result) noexcept {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  if (result != nullptr) *result = now.tv_sec;
  return now.tv_sec;
}

}  // extern "C"
