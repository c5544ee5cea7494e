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

}  // namespace hanji::compute
