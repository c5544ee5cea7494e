#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/sin.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <functional>
#include <vector>

#include "hanji/base/clock.h"
#include "hanji/compute/attention.h"
#include "hanji/compute/gelu.h"
#include "hanji/compute/internal/switch_guard.h"
#include "hanji/compute/layer_norm.h"
#include "hanji/compute/linear.h"
#include "hanji/compute/measure.h"

namespace hanji::compute {
namespace {

constexpr int64_t kPhaseNs = 40'000'000;
constexpr int kMaxRepetitions = 20;
constexpr int64_t kSlowNs = 10 * kPhaseNs;  // what the first run costs more than others is less

at::ScalarType type_of(Precision precision) {
  return precision == Precision::kFloat64    ? at::kDouble
         : precision == Precision::kBFloat16 ? at::kBFloat16
                                             : at::kFloat;
}

/// Values in [-1, 1] without a pattern that helps rounding; no generator's state is touched.
at::Tensor values(at::IntArrayRef sizes, double step) {
  int64_t count = 1;
  for (const int64_t size : sizes) count *= size;
  return at::sin(at::arange(count, at::kDouble) * step).view(sizes);
}

double best_seconds(const std::function<void()>& run) {
  const int64_t first_ns = base::now_ns();
  run();
  const int64_t begin_ns = base::now_ns();
  if (begin_ns - first_ns > kSlowNs) return static_cast<double>(begin_ns - first_ns) * 1e-9;
  double best = 1e30;
  const int64_t end_ns = begin_ns + kPhaseNs;
  for (int i = 0; i < kMaxRepetitions && (i < 2 || base::now_ns() < end_ns); ++i) {
    const int64_t start_ns = base::now_ns();
    run();
    best = std::min(best, static_cast<double>(base::now_ns() - start_ns) * 1e-9);
  }
  return best;
}

double relative_error(const at::Tensor& actual, const at::Tensor& exact) {
  return ((actual.to(at::kDouble) - exact).abs().max() / exact.abs().max()).item<double>();
}

/// The up-projection of the MLP, forward and both products of backward: the layer's largest.
Candidate measure_gemm(Gemm gemm, const MeasureOptions& options) {
  const SwitchGuard guard(gemm, options.threads);
  const Shapes& s = options.shapes;
  const int64_t rows = s.batch * s.block;
  const at::ScalarType type = type_of(options.precision);
  const at::Tensor exact_x = values({rows, s.width}, 0.7).to(type).to(at::kDouble);
  const at::Tensor exact_w = values({4 * s.width, s.width}, 1.3).to(type).to(at::kDouble);
  const at::Tensor x = exact_x.to(type);
  const at::Tensor w = exact_w.to(type);
  const at::Tensor y = x.mm(w.t());
  Candidate one{.name = "gemm." + std::string(name_of(gemm))};
  const int64_t sample = std::min<int64_t>(rows, 16);
  one.error = relative_error(y.narrow(0, 0, sample), exact_x.narrow(0, 0, sample).mm(exact_w.t()));
  one.seconds = best_seconds([&] {
    x.mm(w.t());
    y.mm(w);
    y.t().mm(x);
  });
  one.rate = 3 * 2.0 * static_cast<double>(rows * s.width * 4 * s.width) / one.seconds;
  return one;
}

Candidate measure_attention(Attention attention, Gemm gemm, const MeasureOptions& options) {
  const SwitchGuard guard(gemm, options.threads);
  const Shapes& s = options.shapes;
  const at::ScalarType type = type_of(options.precision);
  const at::Tensor base = values({s.batch, s.block, 3 * s.width}, 0.9).to(type);
  const at::Tensor zeros = at::zeros({3 * s.width}, type == at::kDouble ? at::kDouble : at::kFloat);
  const auto forward = [&](const at::Tensor& qkv, const at::Tensor& bias, Attention path) {
    return causal_attention(qkv, {bias, {}}, {.heads = s.heads, .attention = path});
  };
  Candidate one{.name = "attention." + std::string(name_of(attention))};
  const at::Tensor exact =
      forward(base.narrow(0, 0, 1).to(at::kDouble), zeros.to(at::kDouble), Attention::kMath);
  one.error = relative_error(forward(base.narrow(0, 0, 1), zeros, attention), exact);
  const at::Tensor qkv = base.clone().set_requires_grad(true);
  one.seconds = best_seconds([&] {
    const at::Tensor y = forward(qkv, zeros, attention);
    y.backward(at::ones_like(y));
    qkv.mutable_grad().reset();
  });
  one.rate = 7.0 * static_cast<double>(s.batch * s.block * s.block * s.width) / one.seconds;
  return one;
}

/// Tensors that fit in the caches of a core: at most so many elements of the residual stream.
constexpr int64_t kMaxElements = int64_t{1} << 18;

/// Parameters and inputs of one transformer block, as models/gpt has them.
class Block {
 public:
  Block(int64_t tokens, int64_t width, Precision precision)
      : tokens_(tokens), width_(width), type_(type_of(precision)) {}

  at::ScalarType type() const { return type_; }
  Weight weight(at::IntArrayRef sizes) {
    return {leaf(values(sizes, 1.1) * 0.1, parameter_type()), {}};
  }
  LayerNorm norm() { return {weight({width_}), weight({width_}), 1e-5}; }
  /// What a product of this width gives.
  at::Tensor product(int64_t width) { return leaf(values({1, tokens_, width}, 0.6), type_); }
  /// Of the residual stream, which bf16 keeps in float32.
  at::Tensor residual() { return leaf(values({1, tokens_, width_}, 0.4), parameter_type()); }
  /// As at the start of a step: then backward leaves gradients without adding to any.
  void forget_gradients() {
    for (const at::Tensor& leaf : leaves_) leaf.mutable_grad().reset();
  }

 private:
  at::ScalarType parameter_type() const { return type_ == at::kDouble ? at::kDouble : at::kFloat; }
  at::Tensor leaf(const at::Tensor& values, at::ScalarType type) {
    return leaves_.emplace_back(values.to(type).clone().set_requires_grad(true));
  }

  int64_t tokens_, width_;
  at::ScalarType type_;
  std::vector<at::Tensor> leaves_;
};

void backward(const at::Tensor& y) { y.backward(at::ones_like(y)); }

/// A block of so few elements that its 8 operations and their 8 derivatives do nothing else.
double measure_operation(const MeasureOptions& options) {
  constexpr int64_t kWidth = 16;
  constexpr double kOperations = 16;
  Block block(2, kWidth, options.precision);
  const LayerNorm norm_1 = block.norm(), norm_2 = block.norm();
  const Weight qkv = block.weight({3 * kWidth, kWidth}), qkv_bias = block.weight({3 * kWidth});
  const Weight out = block.weight({kWidth, kWidth}), up = block.weight({4 * kWidth, kWidth});
  const Weight up_bias = block.weight({4 * kWidth}), down = block.weight({kWidth, 4 * kWidth});
  const at::Tensor residual = block.residual();
  const auto run = [&] {
    block.forget_gradients();
    const Normed first = add_layer_norm(residual, {}, norm_1, block.type());
    const at::Tensor mixed = causal_attention(linear(first.normed, qkv), qkv_bias, {.heads = 1});
    const Normed second = add_layer_norm(first.sum, {linear(mixed, out), {}}, norm_2, block.type());
    backward(linear(bias_gelu(linear(second.normed, up), up_bias), down));
  };
  return best_seconds(run) / kOperations;
}

/// Two norms and a GELU, forward and backward: 8 and 8 elements of the width per token and pass.
double measure_elementwise(const MeasureOptions& options, double seconds_per_operation) {
  constexpr double kElements = 16 * 3, kOperations = 6;
  const int64_t width = options.shapes.width;
  const int64_t tokens = std::max<int64_t>(
      1, std::min(options.shapes.batch * options.shapes.block, kMaxElements / width));
  Block block(tokens, width, options.precision);
  const LayerNorm norm_1 = block.norm(), norm_2 = block.norm();
  const Weight bias = block.weight({4 * width});
  const at::Tensor residual = block.residual(), branch = block.product(width);
  const at::Tensor wide = block.product(4 * width);
  const double seconds = best_seconds([&] {
    block.forget_gradients();
    const Normed first = add_layer_norm(residual, {branch, {}}, norm_1, block.type());
    backward(add_layer_norm(first.sum, {first.normed, {}}, norm_2, block.type()).normed);
    backward(bias_gelu(wide, bias));
  });
  // Of few elements the operations themselves take most of the time, and all is never theirs.
  const double moving = std::max(seconds - kOperations * seconds_per_operation, seconds / 8);
  const auto element = static_cast<double>(at::elementSize(block.type()));
  return kElements * element * static_cast<double>(tokens * width) / moving;
}

Overheads measure_overheads(Gemm gemm, const MeasureOptions& options) {
  const SwitchGuard guard(gemm, options.threads);
  const double operation = measure_operation(options);
  return {operation, measure_elementwise(options, operation)};
}

}  // namespace

Measurer real_measurer() { return {measure_gemm, measure_attention, measure_overheads}; }

}  // namespace hanji::compute
