#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <vector>

#include "hanji/base/simd.h"
#include "hanji/compute/attention.h"
#include "hanji/compute/weight.h"

// Inputs of operations, what they compute and how far apart two results are, for tests.
namespace hanji::compute {

using Inputs = std::vector<at::Tensor>;
using Operation = std::function<at::Tensor(const Inputs&)>;

/// Values without a pattern that helps rounding, the same everywhere.
inline at::Tensor values(at::IntArrayRef sizes, at::ScalarType type, double step) {
  int64_t count = 1;
  for (int64_t size : sizes) count *= size;
  return at::sin(at::arange(count, at::kDouble).add(1).mul(step)).mul(2).view(sizes).to(type);
}

inline Inputs inputs(const std::vector<std::vector<int64_t>>& sizes, at::ScalarType type) {
  Inputs all;
  double step = 0.7;
  for (const auto& size : sizes) all.push_back(values(size, type, step += 0.61));
  return all;
}

/// The output, then the gradient of each input for an output gradient without a pattern.
inline Inputs run(const Operation& operation, const Inputs& all) {
  Inputs leaves;
  for (const auto& x : all) leaves.push_back(x.clone().set_requires_grad(true));
  auto out = operation(leaves);
  Inputs results{out.detach().clone()};
  out.backward(values(out.sizes(), at::kFloat, 0.37).to(out.scalar_type()));
  for (const auto& x : leaves) results.push_back(x.grad());
  return results;
}

inline double distance(const at::Tensor& actual, const at::Tensor& expected) {
  const auto exact = expected.to(at::kDouble);
  return ((actual.to(at::kDouble) - exact).abs().max() / exact.abs().max().clamp_min(1e-30))
      .item<double>();
}

inline Weight weight(const at::Tensor& value) { return {value, {}}; }

inline at::Tensor plain_attention(const Inputs& x, int64_t heads, int64_t kv_heads) {
  const int64_t length = x[0].size(1), size = x[0].size(2) / (heads + 2 * kv_heads);
  const int64_t width = heads * size;
  auto parts = (x[0] + x[1]).split_with_sizes({width, kv_heads * size, kv_heads * size}, 2);
  for (auto& part : parts) part = part.unflatten(2, {-1, size}).transpose(1, 2);
  for (size_t i : {1, 2}) parts[i] = parts[i].repeat_interleave(heads / kv_heads, 1);
  auto above = at::ones({length, length}, at::kBool).triu(1);
  auto scores = at::matmul(parts[0], parts[1].transpose(2, 3)) / std::sqrt(double(size));
  auto mixed = at::matmul(scores.masked_fill(above, -INFINITY).softmax(-1), parts[2]);
  return mixed.transpose(1, 2).reshape({-1, length, width});
}

struct AttentionSizes {
  int64_t batch, length, heads, size, kv_heads;
};

/// Runs `body` with every level of vector instructions that this process may use.
inline void at_every_level(const std::function<void()>& body) {
  const base::Simd most = base::usable_simd().or_throw();
  for (const base::Simd level : base::kSimdLevels) {
    if (level > most) continue;
    SCOPED_TRACE(base::name_of(level));
    base::throw_if_error(base::use_simd(level));
    body();
  }
  base::throw_if_error(base::use_simd(most));
}

inline bool has_tiles() {
  return check_attention(Attention::kTiles, base::Precision::kBFloat16).ok();
}

}  // namespace hanji::compute
