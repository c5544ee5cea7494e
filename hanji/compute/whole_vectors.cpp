#include "hanji/compute/whole_vectors.h"

#include <ATen/ops/constant_pad_nd.h>

namespace hanji::compute {

int64_t whole_vectors(int64_t count, const at::Tensor& x) {
  const int64_t vector = 16 / x.element_size();
  return (count + vector - 1) / vector * vector;
}

at::Tensor with_zeros_behind(const at::Tensor& x, int64_t rows, int64_t columns) {
  const int64_t more_rows = rows - x.size(-2), more_columns = columns - x.size(-1);
  // Of channels_last tensors padding would keep the strides.
  const at::Tensor dense = x.contiguous();
  if (more_rows + more_columns == 0) return dense;
  return at::constant_pad_nd(dense, {0, more_columns, 0, more_rows}, 0);
}

}  // namespace hanji::compute
