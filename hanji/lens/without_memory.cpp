#include "hanji/lens/without_memory.h"

#include <c10/core/Allocator.h>
#include <c10/core/Storage.h>

#include "hanji/lens/internal/arguments.h"
#include "hanji/lens/internal/interceptor.h"
#include "hanji/lens/internal/meta_kernels.h"
#include "hanji/lens/operation.h"

namespace hanji::lens {
namespace {

void report(void* storage, int64_t bytes) {
  c10::reportMemoryUsageToProfiler(storage, bytes, 0, 0, c10::Device(c10::kMeta));
}

void release(void* context) {
  const std::unique_ptr<int64_t> bytes(static_cast<int64_t*>(context));
  report(context, -*bytes);
}

/// Once per storage, which reports its end by itself.
void count(const at::Tensor& tensor) {
  if (!tensor.is_meta() || !tensor.has_storage()) return;
  c10::StorageImpl& storage = *tensor.storage().unsafeGetStorageImpl();
  if (storage.data_ptr().get_context() != nullptr) return;
  auto bytes = std::make_unique<int64_t>(static_cast<int64_t>(storage.nbytes()));
  report(bytes.get(), *bytes);
  storage.set_data_ptr_noswap({nullptr, bytes.release(), &release, c10::Device(c10::kMeta)});
}

}  // namespace

class WithoutMemory::Calls : public Interceptor {
 public:
  void call(const c10::OperatorHandle& handle, c10::DispatchKeySet keys,
            std::vector<c10::IValue>& stack) override {
    if (is_composite(handle)) return call_parts(handle, keys, stack);
    kernels_.call(handle, stack);
    for_each_tensor(stack, count);
  }

 private:
  MetaKernels kernels_;
};

class WithoutMemory::Open {
 private:
  Calls calls_;
  const InterceptorScope scope_{calls_};
};

WithoutMemory::WithoutMemory() : open_(std::make_unique<Open>()) {}
WithoutMemory::~WithoutMemory() = default;

}  // namespace hanji::lens
