// The device of the stand-in for a GPU: what c10 and ATen ask of CUDA beside kernels. All work is
// over when the call that launches it returns, so streams have one order and events have passed.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <string>

#include "hanji/test/gpu/counts.h"
#include "hanji/test/gpu/memory.h"
#include "hanji/test/gpu/pending.h"

namespace hanji::test::gpu {
namespace {

constexpr int kMaxDevices = 8, kPoolStreams = 32;

/// FAKE_GPUS, else 1.
c10::DeviceIndex device_count() {
  static const c10::DeviceIndex count = [] {
    const char* asked = std::getenv("FAKE_GPUS");
    return static_cast<c10::DeviceIndex>(
        asked == nullptr ? 1 : std::min(kMaxDevices, std::stoi(asked)));
  }();
  return count;
}

struct Current {
  c10::DeviceIndex device = 0;
  std::array<c10::StreamId, kMaxDevices> streams = {};
};
thread_local Current current;

/// What was asked about is over.
bool over() {
  end_copies();
  return true;
}

void wait_for(const char* what) {
  count_synchronization(what);
  end_copies();
}

struct Event {
  uint64_t recorded = 0;
};

class Guard final : public c10::impl::DeviceGuardImplInterface {
 public:
  c10::DeviceType type() const override { return c10::kCUDA; }
  c10::Device getDevice() const override { return {c10::kCUDA, current.device}; }
  void setDevice(c10::Device device) const override {
    TORCH_CHECK(device.index() < device_count(), "CUDA error: invalid device ordinal");
    uncheckedSetDevice(device);
  }
  void uncheckedSetDevice(c10::Device device) const noexcept override {
    if (device.index() >= 0) current.device = device.index();
  }
  c10::Device exchangeDevice(c10::Device device) const override {
    const c10::Device before = getDevice();
    setDevice(device);
    return before;
  }
  c10::DeviceIndex deviceCount() const noexcept override { return device_count(); }

  c10::Stream getStream(c10::Device device) const override {
    const c10::DeviceIndex index = index_of(device);
    return stream(current.streams[static_cast<size_t>(index)], index);
  }
  c10::Stream getDefaultStream(c10::Device device) const override {
    return stream(0, index_of(device));
  }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool) const override {
    static std::atomic<int> next{0};
    return stream(1 + next.fetch_add(1) % kPoolStreams, index_of(device));
  }
  c10::Stream getNewStream(c10::Device device, int) const override {
    return getStreamFromGlobalPool(device, false);
  }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    const c10::Stream before = getStream(stream.device());
    current.streams[static_cast<size_t>(index_of(stream.device()))] = stream.id();
    return before;
  }
  /// NCCL's stand-in then runs its calls at once.
  void* getStreamNativeHandle(const c10::Stream) const override { return nullptr; }

  void record(void** event, const c10::Stream&, c10::DeviceIndex, c10::EventFlag) const override {
    if (*event == nullptr) *event = new Event;
    ++static_cast<Event*>(*event)->recorded;
  }
  void destroyEvent(void* event, c10::DeviceIndex) const noexcept override {
    delete static_cast<Event*>(event);
  }
  void block(void*, const c10::Stream&) const override {}
  bool queryEvent(void*) const override { return over(); }
  bool queryStream(const c10::Stream&) const override { return over(); }
  double elapsedTime(void*, void*, c10::DeviceIndex) const override { return 0; }
  void synchronizeStream(const c10::Stream&) const override { wait_for("stream"); }
  void synchronizeEvent(void*) const override { wait_for("event"); }
  void synchronizeDevice(c10::DeviceIndex) const override { wait_for("device"); }

 private:
  static c10::DeviceIndex index_of(c10::Device device) {
    return device.index() < 0 ? current.device : device.index();
  }
  static c10::Stream stream(c10::StreamId id, c10::DeviceIndex index) {
    return c10::Stream(c10::Stream::UNSAFE, c10::Device(c10::kCUDA, index), id);
  }
};

const Guard& guard() {
  static auto* one = new Guard;
  return *one;
}

/// Named as libtorch's own, which is how libtorch finds it.
struct CUDAHooks final : at::CUDAHooksInterface {
  explicit CUDAHooks(at::CUDAHooksArgs) {}
  void init() const override {}
  bool hasCUDA() const override { return device_count() > 0; }
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return device_count() > 0; }
  bool hasCUDART() const override { return true; }
  long versionCUDART() const override { return 13000; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  int getNumGPUs() const override { return device_count(); }
  c10::DeviceIndex deviceCount() const override { return device_count(); }
  c10::DeviceIndex current_device() const override { return current.device; }
  c10::DeviceIndex getCurrentDevice() const override { return current.device; }
  void setCurrentDevice(c10::DeviceIndex index) const override {
    guard().setDevice({c10::kCUDA, index});
  }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex index) const override {
    return guard().exchangeDevice({c10::kCUDA, index}).index();
  }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex index) const override {
    return exchangeDevice(index);
  }
  void deviceSynchronize(c10::DeviceIndex) const override { wait_for("device"); }
  bool isPinnedPtr(const void* data) const override { return is_pinned(data); }
  at::Allocator* getPinnedMemoryAllocator() const override { return pinned_memory(); }
  at::Allocator* getCUDADeviceAllocator() const override { return device_memory(); }
  /// Its numbers are not those of CUDA's.
  const at::Generator& getDefaultGenerator(c10::DeviceIndex) const override {
    return at::detail::getDefaultCPUGenerator();
  }
  at::Generator getNewGenerator(c10::DeviceIndex) const override {
    return at::detail::createCPUGenerator();
  }
};

const c10::impl::DeviceGuardImplRegistrar kGuard(c10::kCUDA, &guard());
const bool kHasMemory = [] {
  c10::SetAllocator(c10::kCUDA, device_memory());
  return true;
}();

}  // namespace
}  // namespace hanji::test::gpu

namespace at {
using hanji::test::gpu::CUDAHooks;
REGISTER_CUDA_HOOKS(CUDAHooks)
}  // namespace at
