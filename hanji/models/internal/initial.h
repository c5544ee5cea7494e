#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string_view>

namespace hanji::models {

/// Fills a contiguous fp32 or fp64 tensor with normal values: element e depends on
/// (seed, name, e) alone, and is the same number, rounded, in both dtypes.
void fill_normal(at::Tensor& tensor, double deviation, uint64_t seed, std::string_view name);

}  // namespace hanji::models
