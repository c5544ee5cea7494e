#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string_view>

namespace hanji::models {

/// The quantile function of the standard normal distribution at `p` in (0, 1).
///
/// Result  relative error about 1e-16.
/// Source  Wichura, Algorithm AS 241 (PPND16), Applied Statistics 37(3):477-484, 1988.
double normal_quantile(double p);

/// Fills a contiguous fp32 or fp64 tensor with normal values: element e depends on
/// (seed, name, e) alone, and is the same number, rounded, in both dtypes.
void fill_normal(at::Tensor& tensor, double deviation, uint64_t seed, std::string_view name);

}  // namespace hanji::models
