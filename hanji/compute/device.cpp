#include "hanji/compute/device.h"

#include <ATen/Context.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/format.h>
#include <torch/version.h>

#include <algorithm>

#include "hanji/base/env.h"
#include "hanji/topology/nvml.h"

namespace hanji::compute {
namespace {

using Guard = c10::impl::VirtualGuardImpl;

/// By the driver's library: asking libtorch would make a context on each GPU.
int64_t least_free_bytes() {
  const auto nvml = topology::Nvml::load();
  if (!nvml.ok() || nvml->api().memory == nullptr) return 0;
  const topology::NvmlApi& api = nvml->api();
  if (api.init() != topology::kNvmlSuccess) return 0;
  unsigned count = 0;
  int64_t least = 0;
  if (api.count(&count) != topology::kNvmlSuccess) count = 0;
  for (unsigned i = 0; i < count; ++i) {
    topology::NvmlDevice device = nullptr;
    topology::NvmlMemory memory{};
    if (api.device(i, &device) != topology::kNvmlSuccess) continue;
    if (api.memory(device, &memory) != topology::kNvmlSuccess) continue;
    const auto free = static_cast<int64_t>(memory.free);
    least = least == 0 ? free : std::min(least, free);
  }
  api.shutdown();
  return least;
}

}  // namespace

Gpus find_gpus() {
  Gpus gpus;
  if (!c10::impl::hasDeviceGuardImpl(c10::kCUDA)) {
    gpus.why_none = fmt::format("this build's libtorch {} is made for CPUs alone", TORCH_VERSION);
    return gpus;
  }
  gpus.count = Guard(c10::kCUDA).deviceCount();
  if (gpus.count == 0) {
    gpus.why_none = "libtorch sees none: the driver is missing, or CUDA_VISIBLE_DEVICES hides them";
  } else {
    gpus.free_bytes = least_free_bytes();
  }
  return gpus;
}

Status check_gpus(const Gpus& gpus) {
  if (gpus.count > 0) return {};
  return base::unsupported(
      fmt::format("compute.device = cuda needs a GPU, and there is none here: {}; set "
                  "compute.device = \"cpu\", or run on a host with NVIDIA GPUs with hanji built on "
                  "libtorch for CUDA",
                  gpus.why_none));
}

Result<c10::Device> gpu_of(int local_rank, const Gpus& gpus) {
  HANJI_RETURN_IF_ERROR(check_gpus(gpus));
  if (local_rank < 0 || local_rank >= gpus.count) {
    return base::invalid_argument(fmt::format(
        "rank {} of this host has no GPU of its own: {} {} visible; start as many ranks "
        "as there are GPUs",
        local_rank, gpus.count, gpus.count == 1 ? "is" : "are"));
  }
  return c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(local_rank));
}

void use_gpu(c10::Device device, Repeatable repeatable) {
  if (repeatable == Repeatable::kYes) {
    // cuBLAS reads it when it starts, and libtorch refuses products without it.
    base::throw_if_error(base::set_for_libraries("CUBLAS_WORKSPACE_CONFIG", ":4096:8"));
    at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/false);
    at::globalContext().setDeterministicFillUninitializedMemory(false);
  }
  Guard(device.type()).setDevice(device);
}

}  // namespace hanji::compute
