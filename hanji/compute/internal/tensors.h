#pragma once

#include <ATen/core/Tensor.h>

#include "hanji/compute/internal/number.h"

// The edge between tensors and the kernels on raw memory.
namespace hanji::compute::internal {

/// True where a kernel of ours may read these tensors: on the CPU, in fp32, fp64 or bf16.
inline bool is_served(const at::Tensor& x) {
  const auto type = x.scalar_type();
  return x.is_cpu() && (type == at::kFloat || type == at::kDouble || type == at::kBFloat16);
}

/// The dtype that `type` is computed in.
inline at::ScalarType computed_in(at::ScalarType type) {
  return type == at::kDouble ? at::kDouble : at::kFloat;
}

/// The tensor's memory as T; null if undefined.
template <class T>
T* pointer(const at::Tensor& x) {
  return x.defined() ? static_cast<T*>(x.data_ptr()) : nullptr;
}

/// body(T{}) with the storage type of `type`.
template <class Body>
void with_storage(at::ScalarType type, const Body& body) {
  if (type == at::kFloat) return body(float{});
  if (type == at::kDouble) return body(double{});
  body(BFloat16{});
}

}  // namespace hanji::compute::internal
