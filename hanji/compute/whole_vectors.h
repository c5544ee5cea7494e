#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace hanji::compute {

/// The least number of elements of x's dtype, `count` or more, that fill whole vectors of 16 bytes.
int64_t whole_vectors(int64_t count, const at::Tensor& x);

/// x [..., rows, columns], contiguous, with zeros behind up to these sizes, which it does not exceed. For products whose
/// bits must not depend on what else a rank has: MKL chooses kernels by strides and by where a matrix begins
/// among 16 bytes.
/// Cost    a copy, or none where x is so already.
at::Tensor with_zeros_behind(const at::Tensor& x, int64_t rows, int64_t columns);

/// at::matmul(a, b) of two batches of as many matrices, a [..., m, k] and b [..., k, n], of which each product has its
/// bits in any batch: libtorch gives oneDNN the batches that multiply more than 4096 times, so that small
/// matrices, which are above that only together, are multiplied one by one where it is the library.
at::Tensor matmul_each(const at::Tensor& a, const at::Tensor& b);

}  // namespace hanji::compute
