#include "hanji/test/gpu/host_views.h"

#include <ATen/core/List.h>
#include <c10/core/CPUAllocator.h>

#include <cstring>
#include <memory>

#include "hanji/test/gpu/memory.h"

namespace hanji::test::gpu {
namespace {

class Unreported : public c10::MemoryReportingInfoBase {
 public:
  void reportMemoryUsage(void*, int64_t, size_t, size_t, c10::Device) override {}
  bool memoryProfilingEnabled() const override { return false; }
};

/// Also of optional ones.
bool holds_tensors(const c10::IValue& value) {
  if (!value.isList()) return false;
  for (const c10::IValue& element : value.toListRef()) {
    if (element.isTensor()) return true;
  }
  return false;
}

template <class Replace>
c10::IValue replaced(const c10::IValue& value, const Replace& replace) {
  if (value.isTensor()) return replace(value.toTensor());
  if (!holds_tensors(value)) return value;
  auto list = value.toList().copy();
  for (size_t i = 0; i < list.size(); ++i) {
    const c10::IValue element = list.get(i);
    if (element.isTensor()) list.set(i, replace(element.toTensor()));
  }
  return list;
}

}  // namespace

OnHost::OnHost()
    : unreported_(c10::DebugInfoKind::PROFILER_STATE, std::make_shared<Unreported>()) {}

at::Tensor tensor_over(const c10::Storage& storage, const at::Tensor& like, c10::DispatchKey key) {
  auto tensor = at::detail::make_tensor<c10::TensorImpl>(c10::Storage(storage),
                                                         c10::DispatchKeySet(key), like.dtype());
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(like.sizes(), like.strides(),
                                                      like.storage_offset());
  return tensor;
}

c10::Storage HostViews::host_storage(const c10::Storage& device) {
  for (const Storages& pair : storages_) {
    if (pair.device.is_alias_of(device)) return pair.host;
  }
  auto* data = const_cast<void*>(device.data());
  c10::Storage host(c10::Storage::use_byte_size_t(), device.nbytes(), c10::DataPtr(data, c10::kCPU),
                    c10::GetCPUAllocator(), /*resizable=*/true);
  storages_.push_back({device, host});
  return host;
}

at::Tensor HostViews::of(const at::Tensor& device_tensor) {
  if (!device_tensor.defined() || !device_tensor.is_cuda()) return device_tensor;
  for (const Pair& pair : tensors_) {
    if (pair.device.is_same(device_tensor)) return pair.host;
  }
  TORCH_CHECK(!device_tensor.is_conj() && !device_tensor.is_neg(), "the stand-in for a GPU has no ",
              "tensors that are negated or conjugated when they are read");
  if (tensors_.empty()) device_ = device_tensor.device();
  auto host =
      tensor_over(host_storage(device_tensor.storage()), device_tensor, c10::DispatchKey::CPU);
  if (device_tensor.unsafeGetTensorImpl()->is_wrapped_number()) {
    host.unsafeGetTensorImpl()->set_wrapped_number(true);
  }
  tensors_.push_back({device_tensor, host});
  return host;
}

c10::IValue HostViews::of(const c10::IValue& value) {
  return replaced(value, [this](const at::Tensor& tensor) { return of(tensor); });
}

at::Tensor HostViews::back(const at::Tensor& host_tensor) {
  if (!host_tensor.defined()) return host_tensor;
  for (const Pair& pair : tensors_) {
    if (pair.host.is_same(host_tensor)) return pair.device;
  }
  for (const Storages& pair : storages_) {
    if (pair.host.is_alias_of(host_tensor.storage())) {
      return tensor_over(pair.device, host_tensor, c10::DispatchKey::CUDA);
    }
  }
  storages_.push_back({adopt(host_tensor.storage(), device_), host_tensor.storage()});
  return tensor_over(storages_.back().device, host_tensor, c10::DispatchKey::CUDA);
}

c10::IValue HostViews::back(const c10::IValue& value) {
  return replaced(value, [this](const at::Tensor& tensor) { return back(tensor); });
}

void HostViews::finish() {
  for (const Storages& pair : storages_) {
    if (pair.host.data() == pair.device.data() && pair.host.nbytes() == pair.device.nbytes()) {
      continue;
    }
    auto* device = pair.device.unsafeGetStorageImpl();
    auto memory = device_memory()->allocate(pair.host.nbytes());
    std::memcpy(memory.get(), pair.host.data(), pair.host.nbytes());
    device->set_data_ptr_noswap(std::move(memory));
    device->set_nbytes(pair.host.nbytes());
  }
  for (const Pair& pair : tensors_) {
    auto* impl = pair.device.unsafeGetTensorImpl();
    if (pair.device.sizes() == pair.host.sizes() && pair.device.strides() == pair.host.strides()) {
      continue;
    }
    impl->set_sizes_and_strides(pair.host.sizes(), pair.host.strides(), pair.host.storage_offset());
  }
}

}  // namespace hanji::test::gpu
