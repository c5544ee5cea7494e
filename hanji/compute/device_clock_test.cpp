#include "hanji/compute/device_clock.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

namespace hanji::compute {
namespace {

/// A host and a device in counted time: each call takes the one `launch` and the other `device` seconds.
struct CountedDevice {
  int64_t host_ns = 0, device_ns = 0;
  int64_t spent_ns = 0;  ///< Until the end of the last wait.

  static int64_t ns(double seconds) { return std::llround(seconds * 1e9); }

  void queue(double launch, double device) {
    host_ns += ns(launch);
    device_ns = std::max(device_ns, host_ns) + ns(device);
  }
  void wait() { spent_ns = host_ns = std::max(host_ns, device_ns); }

  DeviceClock clock() {
    return {[this] { return host_ns; }, [this] { wait(); },
            [this](double seconds) { queue(1e-6, seconds); }};
  }
};

TEST(DeviceClock, OfACallThatKeepsItsDeviceBusyTellsBothSidesApart) {
  CountedDevice device;
  const CallTime time = time_call(
      device.clock(), [&] { device.queue(5e-6, 400e-6); }, 0.1);
  EXPECT_NEAR(time.device, 400e-6, 5e-6);
  EXPECT_NEAR(time.launch, 5e-6, 1e-8);
}

TEST(DeviceClock, OfACallThatIsLaunchedLongerThanItRunsFindsWhatTheDeviceTakes) {
  CountedDevice device;
  const CallTime time = time_call(
      device.clock(), [&] { device.queue(20e-6, 3e-6); }, 0.1);
  EXPECT_NEAR(time.device, 3e-6, 1e-7) << "and not the 20 that the device waits for its host";
  EXPECT_NEAR(time.launch, 20e-6, 1e-8);
}

TEST(DeviceClock, DoesNotCountTheFirstCall) {
  CountedDevice device;
  int calls = 0;
  const auto slow_at_first = [&] { device.queue(calls++ == 0 ? 2.0 : 10e-6, 100e-6); };
  const CallTime time = time_call(device.clock(), slow_at_first, 0.1);
  EXPECT_LT(time.launch, 11e-6);
  EXPECT_LT(time.device, 110e-6);
  calls = 0;
  EXPECT_NEAR(time_until_done(device.clock(), slow_at_first, 0.1), 110e-6, 1e-6);
}

TEST(DeviceClock, SpendsItsBudgetAndNotMuchMore) {
  for (const double call : {1e-6, 1e-4, 1e-2}) {
    for (const double launch : {1e-6, 1e-4, 1e-2}) {
      CountedDevice device;
      constexpr double kBudget = 0.5;
      time_call(
          device.clock(), [&] { device.queue(launch, call); }, kBudget);
      EXPECT_LT(static_cast<double>(device.spent_ns) * 1e-9, 2 * kBudget + 4 * (call + launch))
          << launch << " launched, " << call << " on the device";
    }
  }
}

TEST(DeviceClock, OfAHostThatReadsANumberHasItOnBothSides) {
  CountedDevice device;
  const auto read = [&] {
    device.queue(5e-6, 10e-6);
    device.wait();
  };
  const CallTime time = time_call(device.clock(), read, 0.1);
  EXPECT_NEAR(time.launch, 15e-6, 1e-7);
  EXPECT_LE(time.device, 15.1e-6);
  EXPECT_NEAR(time_until_done(device.clock(), read, 0.1), 15e-6, 1e-7);
}

TEST(DeviceClock, OfTheCpuTimesItsCallsAsTheyReturn) {
  const at::Tensor square = at::ones({128, 128});
  const CallTime time = time_call(
      device_clock(c10::kCPU), [&] { at::mm(square, square); }, 0.02);
  EXPECT_GT(time.launch, 0);
  EXPECT_GT(time.device, 0);
  EXPECT_LE(time.device, 1.5 * time.launch);
}

}  // namespace
}  // namespace hanji::compute
