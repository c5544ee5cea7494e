#pragma once

#include <ATen/core/Tensor.h>

namespace hanji::compute {

/// A parameter as the operations of this folder take it. Only `value` must be defined.
struct Weight {
  at::Tensor value;  ///< The leaf that autograd knows.
  at::Tensor slot;   ///< Where backward writes the gradient while value.grad() is undefined.
  /// The value in the dtype of products, as an update has rounded it; undefined: products cast it.
  at::Tensor rounded = {};
  int64_t rounded_version = 0;  ///< value._version() at that time: a later one has other values.
};

/// The value in `dtype`, detached: itself, `rounded` if that is of this dtype and version, else a cast.
at::Tensor value_in(c10::ScalarType dtype, const Weight& weight);

/// Memory for the gradient of `weight`: a fresh alias of its slot, which autograd then keeps as
/// .grad without a copy, or new memory where there is no slot or .grad is already defined, and within
/// DeferGradients.
at::Tensor gradient_memory(const Weight& weight);

}  // namespace hanji::compute
