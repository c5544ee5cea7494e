#include "hanji/test/gpu/memory.h"

#include <c10/core/impl/VirtualGuardImpl.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <new>
#include <string>

#include "hanji/test/gpu/counts.h"

namespace hanji::test::gpu {
namespace {

constexpr size_t kBlock = 512;  // as libtorch's allocator for CUDA

size_t in_blocks(size_t bytes) { return (bytes + kBlock - 1) / kBlock * kBlock; }

/// Counts, and reports to what follows the allocations of this thread.
void report(void* data, int64_t bytes, c10::Device device) {
  const auto now = static_cast<size_t>(count_memory(bytes).bytes);
  c10::reportMemoryUsageToProfiler(data, bytes, now, now, device);
}

void refuse_beyond_limit(size_t bytes) {
  static const char* const limit = std::getenv("FAKE_GPU_BYTES");
  if (limit == nullptr) return;
  const auto used = static_cast<size_t>(fake_gpu_count("bytes"));
  TORCH_CHECK_WITH(OutOfMemoryError, used + bytes <= std::stoull(limit),
                   "CUDA out of memory. Tried to allocate ", bytes, " bytes beside ", used, " of ",
                   limit);
}

/// Memory by address, so that a deleter needs nothing else.
class Blocks {
 public:
  void add(void* data, size_t bytes, c10::Device device) {
    const std::lock_guard lock(mutex_);
    blocks_.insert_or_assign(static_cast<char*>(data), Block{bytes, device});
  }
  std::pair<size_t, c10::Device> take(void* data) {
    const std::lock_guard lock(mutex_);
    const auto found = blocks_.find(static_cast<char*>(data));
    const Block block = found->second;
    blocks_.erase(found);
    return {block.bytes, block.device};
  }
  bool holds(const void* data) {
    const std::lock_guard lock(mutex_);
    auto found = blocks_.upper_bound(static_cast<const char*>(data));
    if (found == blocks_.begin()) return false;
    --found;
    return data < found->first + found->second.bytes;
  }

 private:
  struct Block {
    size_t bytes;
    c10::Device device;
  };
  std::mutex mutex_;
  std::map<const char*, Block> blocks_;
};

Blocks& device_blocks() {
  static auto* blocks = new Blocks;  // outlives every tensor
  return *blocks;
}
Blocks& pinned_blocks() {
  static auto* blocks = new Blocks;
  return *blocks;
}

void* take(size_t bytes) {
  void* data = std::aligned_alloc(kBlock, bytes);
  if (data == nullptr) throw std::bad_alloc();
  return data;
}

void free_device(void* data) {
  if (data == nullptr) return;
  const auto [bytes, device] = device_blocks().take(data);
  report(data, -static_cast<int64_t>(bytes), device);
  std::free(data);
}

void free_pinned(void* data) {
  if (data == nullptr) return;
  pinned_blocks().take(data);
  std::free(data);
}

class DeviceMemory final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t asked) override {
    const c10::Device device = c10::impl::VirtualGuardImpl(c10::kCUDA).getDevice();
    if (asked == 0) return {nullptr, nullptr, &free_device, device};
    const size_t bytes = in_blocks(asked);
    refuse_beyond_limit(bytes);
    void* data = take(bytes);
    std::memset(data, 0xFF, bytes);  // NaN in every dtype: what was not written is seen
    device_blocks().add(data, bytes, device);
    report(data, static_cast<int64_t>(bytes), device);
    return {data, data, &free_device, device};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &free_device; }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    std::memcpy(to, from, bytes);
  }
};

class PinnedMemory final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t asked) override {
    if (asked == 0) return {nullptr, nullptr, &free_pinned, c10::kCPU};
    void* data = take(in_blocks(asked));
    pinned_blocks().add(data, in_blocks(asked), c10::kCPU);
    return {data, data, &free_pinned, c10::kCPU};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &free_pinned; }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    std::memcpy(to, from, bytes);
  }
};

/// What the host made, until the device gives it back.
struct Adopted {
  c10::Storage host;
  size_t bytes;
  c10::Device device;
};

void free_adopted(void* context) {
  auto* adopted = static_cast<Adopted*>(context);
  report(adopted->host.mutable_data(), -static_cast<int64_t>(adopted->bytes), adopted->device);
  delete adopted;
}

}  // namespace

c10::Allocator* device_memory() {
  static auto* memory = new DeviceMemory;
  return memory;
}

c10::Allocator* pinned_memory() {
  static auto* memory = new PinnedMemory;
  return memory;
}

bool is_pinned(const void* data) { return pinned_blocks().holds(data); }

c10::Storage adopt(const c10::Storage& host, c10::Device device) {
  const size_t bytes = in_blocks(host.nbytes());
  refuse_beyond_limit(bytes);
  auto* adopted = new Adopted{host, bytes, device};
  void* data = adopted->host.mutable_data();
  report(data, static_cast<int64_t>(bytes), device);
  return {c10::Storage::use_byte_size_t(), host.nbytes(),
          c10::DataPtr(data, adopted, &free_adopted, device), device_memory(), /*resizable=*/true};
}

}  // namespace hanji::test::gpu
