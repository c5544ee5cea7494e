#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <functional>

#include "hanji/base/clock.h"
#include "hanji/compute/apply.h"
#include "hanji/compute/attention.h"
#include "hanji/compute/internal/switch_guard.h"
#include "hanji/compute/measure.h"
#include "hanji/compute/product.h"

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

at::Tensor numbers(at::IntArrayRef sizes) {
  int64_t count = 1;
  for (const int64_t size : sizes) count *= size;
  return at::arange(count, at::kDouble).view(sizes);
}

/// Values in [-1, 1] without a pattern that helps rounding; no generator's state is touched.
at::Tensor values(at::IntArrayRef sizes, double step) { return numbers(sizes).mul_(step).sin_(); }

/// The same of a frequency that rises: rows of one are to rows of another as if they were random, so that the largest
/// sum of products is none that has nearly cancelled.
at::Tensor unlike_values(at::IntArrayRef sizes, double step) {
  return numbers(sizes).square_().mul_(step).sin_();
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
struct UpProjection {
  UpProjection(const Shapes& s, at::ScalarType type)
      : x(unlike_values({s.batch * s.block, s.width}, 0.7).to(type)),
        w(unlike_values({4 * s.width, s.width}, 1.3).to(type)),
        y(x.mm(w.t())) {}

  void multiply() const {
    x.mm(w.t());
    y.mm(w);
    y.t().mm(x);
  }

  double error() const {
    const int64_t sample = std::min<int64_t>(x.size(0), 16);
    const at::Tensor exact = x.narrow(0, 0, sample).to(at::kDouble).mm(w.to(at::kDouble).t());
    return relative_error(y.narrow(0, 0, sample), exact);
  }

  /// By inputs that lie elsewhere.
  bool repeats() const {
    const at::Tensor other_x = x.clone(), other_w = w.clone();
    const at::Tensor other_y = other_x.mm(other_w.t());
    return y.equal(other_y) && y.mm(w).equal(other_y.mm(other_w)) &&
           y.t().mm(x).equal(other_y.t().mm(other_x));
  }

  at::Tensor x, w, y;
};

Candidate measure_gemm(Gemm gemm, const MeasureOptions& options) {
  const SwitchGuard guard(gemm, options.threads);
  const Shapes& s = options.shapes;
  const UpProjection layer(s, type_of(options.precision));
  Candidate one{.name = "gemm." + std::string(name_of(gemm)), .error = layer.error()};
  if (options.products == Products::kMedium) one.repeats = layer.repeats();
  one.seconds = best_seconds([&] { layer.multiply(); });
  one.rate = 3 * 2.0 * static_cast<double>(layer.x.numel() * 4 * s.width) / one.seconds;
  return one;
}

/// The gradient of the same weight, as a float32 slot receives it.
Candidate measure_weight_gradient(WeightGradient gradient, Gemm gemm,
                                  const MeasureOptions& options) {
  const AppliedForAWhile applied({.gemm = gemm, .weight_gradient = gradient}, options.threads);
  const Shapes& s = options.shapes;
  const int64_t rows = s.batch * s.block;
  const at::Tensor x = values({rows, s.width}, 0.7).to(at::kBFloat16);
  const at::Tensor g = values({rows, 4 * s.width}, 1.3).to(at::kBFloat16);
  const at::Tensor slot = at::zeros({4 * s.width, s.width}, at::kFloat);
  Candidate one{.name = "weight_gradient." + std::string(name_of(gradient))};
  one.seconds = best_seconds([&] { product_out(slot, g.t(), x); });
  const int64_t sample = std::min<int64_t>(4 * s.width, 16);
  const at::Tensor exact = g.narrow(1, 0, sample).to(at::kDouble).t().mm(x.to(at::kDouble));
  one.error = relative_error(slot.narrow(0, 0, sample), exact);
  one.rate = 2.0 * static_cast<double>(rows * s.width * 4 * s.width) / one.seconds;
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

}  // namespace

double error_of_small_products(Gemm gemm) {
  const SwitchGuard guard(gemm, at::get_num_threads());
  return UpProjection(kSmallShapes, at::kFloat).error();
}

Measurer real_measurer() {
  Measurer all{measure_gemm, measure_attention, check_attention};
  if (has_float32_results()) all.weight_gradient = measure_weight_gradient;
  return all;
}

}  // namespace hanji::compute
