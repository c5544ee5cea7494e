#include "hanji/compute/whole_vectors.h"

#include <ATen/Context.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/stack.h>

#include <vector>

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

at::Tensor matmul_each(const at::Tensor& a, const at::Tensor& b) {
  constexpr int64_t kMaxOfBlas = 16 * 16 * 16;
  const int64_t multiplications = a.size(-2) * a.size(-1) * b.size(-1);
  const bool has_one_library =
      at::globalContext().float32MatmulPrecision() == at::Float32MatmulPrecision::HIGHEST;
  if (has_one_library || multiplications > kMaxOfBlas || a.dim() < 3) return at::matmul(a, b);
  const at::Tensor left = a.flatten(0, -3), right = b.flatten(0, -3);
  std::vector<at::Tensor> products;
  for (int64_t i = 0; i < left.size(0); ++i) products.push_back(at::mm(left[i], right[i]));
  std::vector<int64_t> shape = a.sizes().vec();
  shape.back() = b.size(-1);
  return at::stack(products).view(shape);
}

}  // namespace hanji::compute
