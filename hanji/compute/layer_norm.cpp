#include "hanji/compute/layer_norm.h"

#include <ATen/ATen.h>

namespace hanji::compute {

Normed add_layer_norm(const at::Tensor& residual, const Delta& delta, const LayerNorm& norm,
                      c10::ScalarType dtype) {
  auto sum = residual;
  if (delta.value.defined()) sum = sum + delta.value;
  if (delta.bias.value.defined()) sum = sum + delta.bias.value;
  auto normed =
      at::layer_norm(sum, {sum.size(-1)}, norm.weight.value, norm.bias.value, norm.epsilon);
  return {sum, normed.to(dtype)};
}

}  // namespace hanji::compute
