#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <initializer_list>
#include <string_view>
#include <vector>

#include "hanji/layout/range.h"

namespace hanji::models {

/// Fills a contiguous fp32 or fp64 tensor with normal values: element e depends on
/// (seed, name, e) alone, and is the same number, rounded, in both dtypes.
void fill_normal(at::Tensor& tensor, double deviation, uint64_t seed, std::string_view name);
/// The same of a normal distribution cut at two of its deviations and scaled, so that `deviation` is that of
/// the values.
void fill_truncated_normal(at::Tensor& tensor, double deviation, uint64_t seed,
                           std::string_view name);
/// The same of values spread evenly over (-limit, limit).
void fill_uniform(at::Tensor& tensor, double limit, uint64_t seed, std::string_view name);

/// Whether parameters of one of `layers` have memory, if `own` are those that run here; empty: all.
bool is_own(const std::vector<layout::Range>& own, std::initializer_list<int64_t> layers);

/// A tensor of these sizes that has memory for one element.
at::Tensor sizes_alone(at::IntArrayRef sizes, const at::TensorOptions& options);

}  // namespace hanji::models
