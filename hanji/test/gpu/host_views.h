#pragma once

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <c10/util/ThreadLocalDebugInfo.h>

#include <vector>

namespace hanji::test::gpu {

/// CPU tensors over the memory of the device's tensors of one call, and back.
///
/// Thread  one.
class HostViews {
 public:
  /// The same tensor for the same tensor, one storage for those that share one.
  at::Tensor of(const at::Tensor& device_tensor);
  /// `value` with each of the device's tensors replaced, also in lists.
  c10::IValue of(const c10::IValue& value);

  /// The device's tensor that `host_tensor` is a view of; what is new becomes the device's.
  at::Tensor back(const at::Tensor& host_tensor);
  c10::IValue back(const c10::IValue& value);

  /// Gives the device's tensors the sizes that the call has given to views of them. Call it before
  /// back().
  void finish();

  /// The first tensor's.
  c10::Device device() const { return device_; }

 private:
  struct Pair {
    at::Tensor device, host;
  };
  struct Storages {
    c10::Storage device, host;
  };
  c10::Storage host_storage(const c10::Storage& device);

  c10::Device device_ = {c10::kCUDA, 0};
  std::vector<Pair> tensors_;
  std::vector<Storages> storages_;
};

/// While it is there, what this thread calls is a kernel's: below autograd, and its memory is reported
/// to nobody, for what a kernel returns becomes the device's.
class OnHost {
 public:
  OnHost();

 private:
  c10::DebugInfoGuard unreported_;
  at::AutoDispatchBelowADInplaceOrView below_autograd_;
};

/// A tensor of `storage` with the sizes of `like`.
at::Tensor tensor_over(const c10::Storage& storage, const at::Tensor& like, c10::DispatchKey key);

}  // namespace hanji::test::gpu
