#include "hanji/compute/measure_gpu.h"

#include <gtest/gtest.h>

#include "hanji/base/clock.h"

namespace hanji::compute {
namespace {

constexpr GpuProbe kSmall{.side = 128, .copy_bytes = 1 << 20, .host_bytes = 1 << 20};

TEST(MeasureGpu, FindsEveryFigureByTheClockOfItsDevice) {
  const topology::GpuRates rates = measure_gpu(c10::kCPU, device_clock(c10::kCPU), 0.1, kSmall);
  for (const double one : {rates.bf16_flops, rates.float32_flops, rates.memory_bytes_per_second,
                           rates.host_bytes_per_second, rates.launch_seconds, rates.read_seconds}) {
    EXPECT_GT(one, 0);
  }
  EXPECT_EQ(rates.date.size(), std::string("2026-01-31").size());
}

/// A device whose every call takes a microsecond to queue and a millisecond to do, by a clock that counts.
TEST(MeasureGpu, RatesFollowTheTimeOfTheDevice) {
  int64_t now = 0;
  const DeviceClock clock{[&] { return now += 500; }, [&] { now += 1'000'000; }, [](double) {}};
  const topology::GpuRates rates = measure_gpu(c10::kCPU, clock, 0.1, kSmall);
  const double flops = 2.0 * 128 * 128 * 128;
  EXPECT_GT(rates.float32_flops, flops / 1.1e-3) << "of one call or several, done in a millisecond";
  EXPECT_LT(rates.launch_seconds, 2e-6);
  EXPECT_GT(rates.read_seconds, 1e-3);
}

TEST(MeasureGpu, OfTheCpuNothingIsReleased) { release_device_memory(c10::kCPU); }

}  // namespace
}  // namespace hanji::compute
