#include "hanji/compute/weight.h"

#include <ATen/ATen.h>

namespace hanji::compute {

at::Tensor gradient_memory(const Weight& weight) {
  if (weight.slot.defined() && !weight.value.grad().defined()) return weight.slot.alias().detach();
  return at::empty(weight.value.sizes(), weight.value.options().requires_grad(false));
}

}  // namespace hanji::compute
