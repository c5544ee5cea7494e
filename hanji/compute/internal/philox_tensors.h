#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>

#include "hanji/compute/dropout.h"

namespace hanji::compute::internal {

/// Four random words per counter, each in the low half of an int64.
using Words = std::array<at::Tensor, 4>;

/// base::Philox::draw() of many counters by libtorch's operations, on the device of `counters`.
///
/// Shape   keys and counters int64 and broadcastable; a negative one stands for the uint64 of its bits.
/// Result  the bits of base::Philox.
/// Cost    about 150 element-wise operations of int64; ten tensors of the result's shape at a time.
Words philox_words(const at::Tensor& keys, uint64_t counter_high, const at::Tensor& counters);

/// base::mix(key, value) of many values.
at::Tensor mixed(uint64_t key, const at::Tensor& values);

/// 0 with `probability`, else 1/(1-probability), of whole samples.
///
/// Shape   keys [samples] int64, one for each sample; the result [samples, elements] float32, beside them.
/// Cost    works on at most a million counters (four million elements) at a time: 130 MB beside the result.
at::Tensor mask_of_samples(const at::Tensor& keys, int64_t elements, double probability);

/// dropout_mask() by these operations, on the device of `options`.
/// Errors  as dropout_mask().
at::Tensor mask_by_operations(at::IntArrayRef sizes, double probability, const DropoutKey& key,
                              const at::TensorOptions& options);

}  // namespace hanji::compute::internal
