#include "hanji/compute/gelu.h"

#include <ATen/ATen.h>

namespace hanji::compute {

at::Tensor bias_gelu(const at::Tensor& x, const Weight& bias) {
  return at::gelu(x + bias.value.to(x.scalar_type()), "tanh");
}

}  // namespace hanji::compute
