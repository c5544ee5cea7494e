#include "hanji/comm/heap_scope.h"

#include <c10/core/Allocator.h>

#include <atomic>
#include <limits>
#include <mutex>
#include <utility>

#include "hanji/base/status.h"
#include "hanji/shm/heap.h"

namespace hanji::comm {
namespace {

/// A tensor's memory. Its address is the context of a DataPtr.
struct ScopedBlock {
  Heap heap;
  shm::HeapBlock block;
};

void report_bytes(const ScopedBlock& scoped, int64_t bytes) {
  if (!c10::memoryProfilingEnabled()) return;
  c10::reportMemoryUsageToProfiler(scoped.block.data, bytes, scoped.heap.used_bytes(), 0,
                                   c10::kCPU);
}

void free_scoped(void* context) {
  const std::unique_ptr<ScopedBlock> scoped(static_cast<ScopedBlock*>(context));
  report_bytes(*scoped, -static_cast<int64_t>(scoped->block.bytes));
  [[maybe_unused]] const Status freed = scoped->heap.raw().free(scoped->block.offset);
}

thread_local HeapScope* innermost = nullptr;

}  // namespace

/// What libtorch asks for memory of the CPU while any scope lives. Tensors keep its address.
class HeapAllocator final : public c10::Allocator {
 public:
  /// The process's, as libtorch's registry is: never destroyed, since tensors may outlive main().
  static HeapAllocator& instance() {
    static auto* const allocator = new HeapAllocator;
    return *allocator;
  }

  c10::DataPtr allocate(size_t bytes) override {
    HeapScope* scope = innermost;
    if (scope == nullptr || bytes == 0) return before_.load()->allocate(bytes);
    auto block = scope->heap_.raw().allocate(bytes, scope->category_);
    if (!block.ok()) {
      ++scope->counts_.private_tensors;
      scope->counts_.private_bytes += static_cast<int64_t>(bytes);
      return before_.load()->allocate(bytes);
    }
    ++scope->counts_.heap_tensors;
    scope->counts_.heap_bytes += static_cast<int64_t>(bytes);
    auto scoped = std::make_unique<ScopedBlock>(ScopedBlock{scope->heap_, *block});
    report_bytes(*scoped, static_cast<int64_t>(bytes));
    return {block->data, scoped.release(), &free_scoped, c10::kCPU};
  }

  void copy_data(void* to, const void* from, size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }

  void open() {
    const std::lock_guard lock(mutex_);
    if (num_scopes_ == 0 && !installed_) install();
    ++num_scopes_;
  }

  void close() {
    const std::lock_guard lock(mutex_);
    if (--num_scopes_ > 0 || c10::GetAllocator(c10::kCPU) != this) return;
    c10::SetAllocator(c10::kCPU, before_, priority_);
    installed_ = false;
  }

 private:
  // libtorch takes an allocator of at least the priority of the last, and does not say which it is.
  void install() {
    before_ = c10::GetAllocator(c10::kCPU);
    for (int priority = 0; priority <= std::numeric_limits<uint8_t>::max(); ++priority) {
      priority_ = static_cast<uint8_t>(priority);
      c10::SetAllocator(c10::kCPU, this, priority_);
      installed_ = c10::GetAllocator(c10::kCPU) == this;
      if (installed_) return;
    }
    throw Error(
        base::unsupported("heap scope: libtorch does not take another CPU allocator; make the "
                          "tensors by Heap::empty"));
  }

  std::mutex mutex_;
  int num_scopes_ = 0;      // of the process
  bool installed_ = false;  // also below an allocator that came later
  uint8_t priority_ = 0;
  std::atomic<c10::Allocator*> before_ = nullptr;
};

HeapScope::HeapScope(Heap heap, std::string_view category)
    : heap_(std::move(heap)), category_(category), outer_(innermost) {
  HeapAllocator::instance().open();
  innermost = this;
}

HeapScope::~HeapScope() {
  innermost = outer_;
  HeapAllocator::instance().close();
}

}  // namespace hanji::comm
