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

double product_rate(int64_t side, at::ScalarType type, c10::Device device, const DeviceClock& clock,
                    double budget) {
  const at::Tensor left = square(side, device, type), right = left.clone();
  at::Tensor result = at::empty({side, side}, on(device, type));
  const CallTime time = time_call(
      clock, [&] { at::mm_out(result, left, right); }, budget);
  const auto length = static_cast<double>(side);
  return 2 * length * length * length / time.device;
}

double copy_rate(int64_t bytes, c10::Device device, const DeviceClock& clock, double budget) {
  const at::Tensor from = at::zeros({bytes / 4}, on(device, at::kFloat));
  at::Tensor to = at::empty({bytes / 4}, on(device, at::kFloat));
  return 2 * static_cast<double>(bytes) /
         time_call(
             clock, [&] { to.copy_(from); }, budget)
             .device;
}

double host_rate(int64_t bytes, c10::Device device, const DeviceClock& clock, double budget) {
  const at::Tensor plain = at::zeros({bytes / 4}, at::kFloat);
  const at::Tensor from = device.is_cpu() ? plain : plain.pin_memory();
  at::Tensor to = at::empty({bytes / 4}, on(device, at::kFloat));
  const auto copy = [&] { to.copy_(from, /*non_blocking=*/true); };
  return static_cast<double>(bytes) / time_call(clock, copy, budget).device;
}

}  // namespace

topology::GpuRates measure_gpu(c10::Device device, const DeviceClock& clock, double budget_seconds,
                               GpuProbe probe) {
  const at::NoGradGuard no_grad;
  const double each = budget_seconds / kNumFigures;
  topology::GpuRates rates{.device = device.is_cpu() ? "cpu" : gpu_name(),
                           .date = base::format_time(base::wall_ns()).substr(0, 10)};
  rates.bf16_flops = product_rate(probe.side, at::kBFloat16, device, clock, each);
  rates.float32_flops = product_rate(probe.side, at::kFloat, device, clock, each);
  rates.memory_bytes_per_second = copy_rate(probe.copy_bytes, device, clock, each);
  rates.host_bytes_per_second = host_rate(probe.host_bytes, device, clock, each);
  at::Tensor one = at::zeros({1}, on(device, at::kFloat));
  rates.launch_seconds = time_call(
                             clock, [&] { one.fill_(1); }, each)
                             .launch;
  rates.read_seconds = time_until_done(
      clock, [&] { one.item<float>(); }, each);
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
