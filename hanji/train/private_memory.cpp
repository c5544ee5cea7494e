#include "hanji/train/private_memory.h"

#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <algorithm>
#include <atomic>

namespace hanji::train {

class PrivateMemory::Counter : public c10::MemoryReportingInfoBase {
 public:
  void reportMemoryUsage(void*, int64_t size, size_t, size_t, c10::Device) override {
    const int64_t now = current_.fetch_add(size) + size;
    int64_t peak = peak_.load();
    while (now > peak && !peak_.compare_exchange_weak(peak, now)) {
    }
  }
  bool memoryProfilingEnabled() const override { return true; }

  int64_t current() const { return current_; }
  int64_t peak() const { return peak_; }

 private:
  std::atomic<int64_t> current_ = 0;
  std::atomic<int64_t> peak_ = 0;
};

class PrivateMemory::Guard : public c10::DebugInfoGuard {
 public:
  explicit Guard(std::shared_ptr<Counter> counter)
      : c10::DebugInfoGuard(c10::DebugInfoKind::PROFILER_STATE, std::move(counter)) {}
};

PrivateMemory::PrivateMemory()
    : counter_(std::make_shared<Counter>()), guard_(std::make_unique<Guard>(counter_)) {}
PrivateMemory::~PrivateMemory() = default;

int64_t PrivateMemory::current_bytes() const { return std::max<int64_t>(0, counter_->current()); }
int64_t PrivateMemory::peak_bytes() const { return counter_->peak(); }

}  // namespace hanji::train
