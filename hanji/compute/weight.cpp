#include "hanji/compute/weight.h"

#include <ATen/ATen.h>

#include "hanji/compute/deferred.h"

namespace hanji::compute {

at::Tensor value_in(c10::ScalarType dtype, const Weight& weight) {
  if (weight.value.scalar_type() == dtype) return weight.value.detach();
  const bool is_rounded = weight.rounded.defined() && weight.rounded.scalar_type() == dtype &&
                          weight.rounded_version == weight.value._version();
  return is_rounded ? weight.rounded : weight.value.detach().to(dtype);
}

at::Tensor gradient_memory(const Weight& weight) {
  const bool in_slot =
      weight.slot.defined() && !weight.value.grad().defined() && !defers_gradients();
  if (in_slot) return weight.slot.alias().detach();
  return at::empty(weight.value.sizes(), weight.value.options().requires_grad(false));
}

}  // namespace hanji::compute
