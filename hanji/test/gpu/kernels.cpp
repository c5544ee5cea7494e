// The kernels of the stand-in for a GPU: every operation runs with libtorch's kernel for CPUs on the
// memory of the device's tensors, after the checks that libtorch for CUDA makes.
#include <ATen/EmptyTensor.h>
#include <ATen/ops/_local_scalar_dense_ops.h>
#include <ATen/ops/copy_ops.h>
#include <ATen/ops/set_native.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

#include <string>
#include <utility>

#include "hanji/test/gpu/counts.h"
#include "hanji/test/gpu/host_views.h"
#include "hanji/test/gpu/memory.h"
#include "hanji/test/gpu/pending.h"
#include "hanji/test/gpu/rules.h"

namespace hanji::test::gpu {
namespace {

using at::Tensor;

constexpr c10::DispatchKeySet kHost(c10::DispatchKey::CPU);
constexpr c10::DispatchKeySet kDevice(c10::DispatchKey::CUDA);

void run_on_host(const c10::OperatorHandle& operation, c10::DispatchKeySet,
                 torch::jit::Stack* stack) {
  const size_t count = operation.schema().arguments().size();
  const auto arguments = torch::jit::last(*stack, count);
  refuse_cpu_only(operation);
  refuse_mixed_devices(operation, arguments);
  refuse_changing_bits(operation, arguments);
  count_operation(operation.schema().name());
  if (is_read_by_host(operation)) {
    count_synchronization(operation.schema().name());
    end_copies();
  }
  HostViews views;
  torch::jit::Stack on_host;
  for (const c10::IValue& argument : arguments) on_host.push_back(views.of(argument));
  torch::jit::drop(*stack, count);
  for (c10::IValue& argument : on_host) {
    if (argument.isDevice()) argument = c10::Device(c10::kCPU);
  }
  {
    const OnHost now;
    operation.redispatchBoxed(kHost, &on_host);
  }
  views.finish();
  for (const c10::IValue& result : on_host) stack->push_back(views.back(result));
}

Tensor empty(at::IntArrayRef sizes, std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
             std::optional<at::Device> device, std::optional<bool>,
             std::optional<at::MemoryFormat> format) {
  const c10::OptionalDeviceGuard there(device);
  return at::detail::empty_generic(sizes, device_memory(), kDevice, c10::dtype_or_default(dtype),
                                   format);
}

Tensor empty_strided(at::IntArrayRef sizes, at::IntArrayRef strides,
                     std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
                     std::optional<at::Device> device, std::optional<bool>) {
  const c10::OptionalDeviceGuard there(device);
  return at::detail::empty_strided_generic(sizes, strides, device_memory(), kDevice,
                                           c10::dtype_or_default(dtype));
}

/// Between pinned memory and the device the host need not wait, if it says so.
void finish_copy(const Tensor& to, const Tensor& from, bool non_blocking) {
  if (to.is_cuda() && from.is_cuda()) return;
  const Tensor& host = to.is_cuda() ? from : to;
  const size_t bytes = static_cast<size_t>(to.numel()) * from.element_size();
  to.is_cuda() ? count_copy_to_device(bytes) : count_copy_to_host(bytes);
  if (non_blocking && is_pinned(host.const_data_ptr())) {
    to.is_cuda() ? begin_copy_to_device(host) : begin_copy_to_host(host);
    return;
  }
  count_synchronization(to.is_cuda() ? "copy to device" : "copy to host");
  end_copies();
}

Tensor& copy(Tensor& to, const Tensor& from, bool non_blocking) {
  count_operation("aten::copy_");
  {
    HostViews views;
    auto host = views.of(to);
    const OnHost now;
    at::_ops::copy_::redispatch(kHost, host, views.of(from), false);
  }
  finish_copy(to, from, non_blocking);
  return to;
}

at::Scalar local_scalar_dense(const Tensor& self) {
  count_operation("aten::_local_scalar_dense");
  count_synchronization("aten::_local_scalar_dense");
  end_copies();
  count_copy_to_host(self.element_size());
  HostViews views;
  const OnHost now;
  return at::_ops::_local_scalar_dense::redispatch(kHost, views.of(self));
}

void record_stream(Tensor& self, at::Stream) {
  TORCH_CHECK(self.is_cuda(), "record_stream: a tensor of ", self.device());
}

/// Touches no memory, so the kernel for CPUs serves.
Tensor& set_storage(Tensor& self, at::Storage source, int64_t offset, at::IntArrayRef sizes,
                    at::IntArrayRef strides) {
  return at::native::set_storage_cpu_(self, std::move(source), offset, sizes, strides);
}

TORCH_LIBRARY_IMPL(_, CUDA, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&run_on_host>());
}

TORCH_LIBRARY_IMPL(aten, CUDA, library) {
  library.impl("empty.memory_format", &empty);
  library.impl("empty_strided", &empty_strided);
  library.impl("copy_", &copy);
  library.impl("_local_scalar_dense", &local_scalar_dense);
  library.impl("record_stream", &record_stream);
  library.impl("set_.source_Storage_storage_offset", &set_storage);
  library.impl("set_.source_Tensor", &at::native::set_tensor_);
}

/// Operations that libtorch composes of others where a device has no kernel, but has a kernel of for CPUs
/// and so for CUDA.
const bool kHasKernels = [] {
  static torch::Library library(torch::Library::IMPL, "aten", c10::DispatchKey::CUDA, __FILE__,
                                __LINE__);
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
    const auto operation = dispatcher.findOp(name);
    if (name.getNamespace() != "aten" || name.name == "aten::_fused_sdp_choice" ||
        !operation->hasKernelForDispatchKey(c10::DispatchKey::CPU) ||
        operation->hasKernelForDispatchKey(c10::DispatchKey::CUDA)) {
      continue;
    }
    const std::string full =
        name.name + (name.overload_name.empty() ? "" : ".") + name.overload_name;
    library.impl(full.c_str(), torch::CppFunction::makeFromBoxedFunction<&run_on_host>());
  }
  return true;
}();

}  // namespace
}  // namespace hanji::test::gpu
