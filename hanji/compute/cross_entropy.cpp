#include "hanji/compute/cross_entropy.h"

#include <ATen/ATen.h>

namespace hanji::compute {

at::Tensor cross_entropy_sum(const at::Tensor& logits, const at::Tensor& targets) {
  const auto dtype = logits.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  return at::cross_entropy_loss(logits.to(dtype), targets, {}, at::Reduction::Sum, -1);
}

}  // namespace hanji::compute
