#include "hanji/compute/measure_gpu.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/zeros.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <set>

#include "hanji/base/clock.h"
#include "hanji/base/log.h"
#include "hanji/topology/gpus.h"

namespace hanji::compute {
namespace {

constexpr int kNumFigures = 6;

at::TensorOptions on(c10::Device device, at::ScalarType type) {
  return at::TensorOptions(type).device(device);
}

/// In [-1, 1]: zeros take less power, and a device may clock higher by it. No generator's state is touched.
at::Tensor square(int64_t side, c10::Device device, at::ScalarType type) {
  return at::arange(side * side, on(device, at::kFloat)).sin_().view({side, side}).to(type);
}

/// The call of the first size, from `size` in steps of two, that takes a millisecond, or of the largest.
using MakeSized = std::function<std::function<void()>(int64_t size)>;
int64_t size_to_time(int64_t size, int64_t largest, const DeviceClock& clock,
                     const MakeSized& make) {
  constexpr double kLongEnough = 1e-3;
  while (2 * size <= largest && time_until_done(clock, make(size), 0) < kLongEnough) size *= 2;
  return size;
}

/// Where a figure is measured, and how long.
struct Probing {
  c10::Device device;
  const DeviceClock& clock;
  double budget;
};

double product_rate(int64_t largest, at::ScalarType type, const Probing& at_device) {
  const auto& [device, clock, budget] = at_device;
  const MakeSized make = [&, device = device](int64_t side) {
    const at::Tensor left = square(side, device, type), right = left.clone();
    return [left, right, result = at::empty({side, side}, on(device, type))]() mutable {
      at::mm_out(result, left, right);
    };
  };
  constexpr int64_t kFirstSide = 512;
  const int64_t side = size_to_time(std::min(kFirstSide, largest), largest, clock, make);
  const auto length = static_cast<double>(side);
  return 2 * length * length * length / time_call(clock, make(side), budget).device;
}

/// Bytes per second of a copy to the device of so many bytes, at most.
double copy_rate(int64_t largest, const at::TensorOptions& from, bool pinned,
                 const Probing& at_device) {
  const auto& [device, clock, budget] = at_device;
  const MakeSized make = [&, device = device](int64_t bytes) {
    const at::Tensor plain = at::zeros({bytes / 4}, from);
    return [source = pinned ? plain.pin_memory() : plain,
            target = at::empty({bytes / 4}, on(device, at::kFloat))] {
      target.copy_(source, /*non_blocking=*/true);
    };
  };
  constexpr int64_t kFirstBytes = int64_t{4} << 20;
  const int64_t bytes = size_to_time(std::min(kFirstBytes, largest), largest, clock, make);
  return static_cast<double>(bytes) / time_call(clock, make(bytes), budget).device;
}

}  // namespace

topology::GpuRates measure_gpu(c10::Device device, const DeviceClock& clock, double budget_seconds,
                               GpuProbe probe) {
  const at::NoGradGuard no_grad;
  const double each = budget_seconds / kNumFigures;
  topology::GpuRates rates{.device = device.is_cpu() ? "cpu" : gpu_name(),
                           .date = base::format_time(base::wall_ns()).substr(0, 10)};
  rates.bf16_flops = product_rate(probe.side, at::kBFloat16, {device, clock, each});
  rates.float32_flops = product_rate(probe.side, at::kFloat, {device, clock, each});
  rates.memory_bytes_per_second =
      2 * copy_rate(probe.copy_bytes, on(device, at::kFloat), false, {device, clock, each});
  rates.host_bytes_per_second =
      copy_rate(probe.host_bytes, at::kFloat, !device.is_cpu(), {device, clock, each});
  at::Tensor one = at::zeros({1}, on(device, at::kFloat));
  const auto write = [&] { one.fill_(1); };
  rates.launch_seconds = time_call(clock, write, each).launch;
  const auto read = [&] { one.item<float>(); };
  rates.read_seconds = time_until_done(clock, read, each);
  return rates;
}

std::string gpu_name() {
  std::set<std::string> names;
  for (const topology::Gpu& gpu : topology::read_gpus("libnvidia-ml.so.1").gpus) {
    for (const topology::Fact& fact : gpu.facts) {
      if (fact.name == "name") names.insert(fact.value);
    }
  }
  if (names.size() == 1) return *names.begin();
  return names.empty() ? "cuda:0" : fmt::format("cuda:0, one of {}", fmt::join(names, " and "));
}

void release_device_memory(c10::Device device) {
  if (device.is_cpu()) return;
  auto* allocator = dynamic_cast<c10::DeviceAllocator*>(c10::GetAllocator(device.type()));
  if (allocator == nullptr || !allocator->initialized()) return;
  allocator->emptyCache();
  allocator->resetPeakStats(device.index());
}

}  // namespace hanji::compute
