#include "hanji/train/private_memory.h"

#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <algorithm>
#include <atomic>
#include <optional>

#include "hanji/comm/heap.h"

namespace hanji::train {

namespace {

void raise(std::atomic<int64_t>& peak, int64_t now) {
  int64_t seen = peak.load();
  while (now > seen && !peak.compare_exchange_weak(seen, now)) {
  }
}

}  // namespace

class PrivateMemory::Counter : public c10::MemoryReportingInfoBase {
 public:
  explicit Counter(std::optional<comm::Heap> heap) : heap_(std::move(heap)) {}

  /// Of no bytes where the heap has grown.
  void reportMemoryUsage(void*, int64_t size, size_t, size_t reserved,
                         c10::Device device) override {
    const int64_t now = current_.fetch_add(size) + size;
    raise(peak_, now + (heap_ ? static_cast<int64_t>(heap_->used_bytes()) : 0));
    raise(recent_peak_, now);
    if (!device.is_cuda()) return;
    raise(device_peak_, on_device_.fetch_add(size) + size);
    raise(device_reserved_, static_cast<int64_t>(reserved));
  }
  bool memoryProfilingEnabled() const override { return true; }

  int64_t current() const { return current_; }
  int64_t peak() const { return peak_; }
  int64_t recent_peak() const { return recent_peak_; }
  DeviceMemory device() const { return {.peak = device_peak_, .reserved = device_reserved_}; }
  void forget_recent_peak() { recent_peak_ = current_.load(); }

 private:
  const std::optional<comm::Heap> heap_;
  std::atomic<int64_t> current_ = 0;
  std::atomic<int64_t> peak_ = 0;
  std::atomic<int64_t> recent_peak_ = 0;
  std::atomic<int64_t> on_device_ = 0;
  std::atomic<int64_t> device_peak_ = 0;
  std::atomic<int64_t> device_reserved_ = 0;
};

class PrivateMemory::Guard : public c10::DebugInfoGuard {
 public:
  explicit Guard(std::shared_ptr<Counter> counter)
      : c10::DebugInfoGuard(c10::DebugInfoKind::PROFILER_STATE, std::move(counter)) {}
};

PrivateMemory::PrivateMemory()
    : counter_(std::make_shared<Counter>(std::nullopt)),
      guard_(std::make_unique<Guard>(counter_)) {}
PrivateMemory::PrivateMemory(const comm::Heap& heap)
    : counter_(std::make_shared<Counter>(heap)), guard_(std::make_unique<Guard>(counter_)) {}
PrivateMemory::~PrivateMemory() = default;

int64_t PrivateMemory::current_bytes() const { return std::max<int64_t>(0, counter_->current()); }
int64_t PrivateMemory::peak_bytes() const { return counter_->peak(); }
DeviceMemory PrivateMemory::device() const { return counter_->device(); }

int64_t PrivateMemory::recent_peak_bytes() const { return counter_->recent_peak(); }
void PrivateMemory::begin_peak() { counter_->forget_recent_peak(); }

void PrivateMemory::begin_forward(int64_t of_pass) {
  before_forward_ = counter_->current() - of_pass;
}

void PrivateMemory::begin_backward() {
  before_backward_ = counter_->current();
  counter_->forget_recent_peak();
}

void PrivateMemory::end_backward() {
  if (++num_passes_ <= 2) largest_pass_ = {};
  largest_pass_.activations =
      std::max(largest_pass_.activations, before_backward_ - before_forward_);
  largest_pass_.workspace =
      std::max(largest_pass_.workspace, counter_->recent_peak() - before_backward_);
}

}  // namespace hanji::train
