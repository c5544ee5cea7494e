#include "hanji/parallel/without_memory.h"

#include <ATen/ops/empty.h>
#include <torch/version.h>

#include <utility>

namespace hanji::parallel {
namespace {

#if TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR < 13
// No function of this libtorch resets the flag. An explicit instantiation may name a private member.
bool c10::StorageImpl::*access_throws();
template <bool c10::StorageImpl::*kFlag>
struct AccessThrows {
  friend bool c10::StorageImpl::*access_throws() { return kFlag; }
};
template struct AccessThrows<&c10::StorageImpl::throw_on_immutable_data_ptr_>;
#endif

c10::StorageImpl& storage_impl(const at::Tensor& tensor) {
  return *tensor.storage().unsafeGetStorageImpl();
}

}  // namespace

at::Tensor without_memory(at::IntArrayRef sizes, const at::TensorOptions& options,
                          std::string why) {
  const auto bytes =
      c10::multiply_integers(sizes) * static_cast<int64_t>(options.dtype().itemsize());
  at::Tensor tensor = at::empty({0}, options);
  auto storage = c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), bytes,
                                                       c10::DataPtr(nullptr, tensor.device()),
                                                       nullptr, /*resizable=*/false);
  tensor.unsafeGetTensorImpl()->set_storage_keep_dtype(c10::Storage(std::move(storage)));
  tensor.unsafeGetTensorImpl()->set_sizes_contiguous(sizes);
  storage_impl(tensor).release_data_and_set_meta_custom_data_ptr_error_msg_(std::move(why));
  return tensor;
}

bool is_without_memory(const at::Tensor& tensor) {
  if (!tensor.has_storage() || tensor.is_meta()) return false;
  c10::StorageImpl& storage = storage_impl(tensor);
  return storage.nbytes() > 0 && storage._mutable_data_ptr_no_checks().get() == nullptr;
}

void allow_access(c10::StorageImpl& storage) {
#if TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR < 13
  storage.*access_throws() = false;
#else
  storage.clear_data_ptr_access_error_msg_();
#endif
}

void lend_memory(const at::Tensor& tensor, void* data) {
  c10::StorageImpl& storage = storage_impl(tensor);
  allow_access(storage);
  storage.set_data_ptr_noswap(c10::DataPtr(data, c10::kCPU));
}

void take_memory(const at::Tensor& tensor, std::string why) {
  c10::StorageImpl& storage = storage_impl(tensor);
  storage.set_data_ptr_noswap(c10::DataPtr(nullptr, c10::kCPU));
  storage.release_data_and_set_meta_custom_data_ptr_error_msg_(std::move(why));
}

}  // namespace hanji::parallel
