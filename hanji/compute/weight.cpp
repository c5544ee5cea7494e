#include "hanji/compute/weight.h"

#include <ATen/ATen.h>

#include "hanji/compute/deferred.h"

namespace hanji::compute {

at::Tensor gradient_memory(const Weight& weight) {
  const bool in_slot =
      weight.slot.defined() && !weight.value.grad().defined() && !defers_gradients();
  if (in_slot) return weight.slot.alias().detach();
  return at::empty(weight.value.sizes(), weight.value.options().requires_grad(false));
}

}  // namespace hanji::compute
