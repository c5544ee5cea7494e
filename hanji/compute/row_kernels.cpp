#include "hanji/compute/internal/row_kernels.h"

#include <algorithm>
#include <cmath>
#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "hanji/compute/row_kernels.cpp"
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4)
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

// clang-format off: math-inl.h must follow highway.h
#include <hwy/contrib/math/math-inl.h>
#include "hanji/compute/internal/vectors-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace hanji::compute::internal {
namespace HWY_NAMESPACE {

constexpr double kRoot = 0.7978845608028654;  // sqrt(2/pi)
constexpr double kCubic = 0.044715;

/// 1 / (1 + exp(-2 u)) for u = kRoot (x + kCubic x^3): x times this is gelu(x).
template <class D>
HWY_INLINE hn::Vec<D> gate(D d, hn::Vec<D> x, hn::Vec<D> square) {
  using C = hn::TFromD<D>;
  const auto factor = hn::MulAdd(square, hn::Set(d, static_cast<C>(-2 * kRoot * kCubic)),
                                 hn::Set(d, static_cast<C>(-2 * kRoot)));
  // Beyond this exp() would overflow; x times the gate is then below the smallest normal number.
  const auto limit = hn::Set(d, static_cast<C>(sizeof(C) == 4 ? 87 : 700));
  const auto one = hn::Set(d, static_cast<C>(1));
  return hn::Div(one, hn::Add(one, hn::Exp(d, hn::Min(limit, hn::Mul(x, factor)))));
}

template <class T>
HWY_INLINE void gelu_forward_rows(const Rows& rows, const T* x, const ComputedIn<T>* bias, T* out) {
  const hn::ScalableTag<ComputedIn<T>> d;
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    const T* in = x + row * rows.columns;
    T* to = out + row * rows.columns;
    for_columns(d, rows.columns, [&](int64_t i, auto at) HWY_ATTR {
      const auto v = hn::Add(at.read(in + i), at.read(bias + i));
      at.write(hn::Mul(v, gate(d, v, hn::Mul(v, v))), to + i);
    });
  }
}

/// s + x s (1 - s) 2 u'(x).
template <class D>
HWY_INLINE hn::Vec<D> gelu_slope(D d, hn::Vec<D> x) {
  using C = hn::TFromD<D>;
  const auto square = hn::Mul(x, x);
  const auto s = gate(d, x, square);
  const auto slope = hn::MulAdd(square, hn::Set(d, static_cast<C>(6 * kRoot * kCubic)),
                                hn::Set(d, static_cast<C>(2 * kRoot)));
  const auto rest = hn::NegMulAdd(s, s, s);
  return hn::MulAdd(hn::Mul(x, slope), rest, s);
}

template <class C>
HWY_INLINE C* sums_of(C* sums, int64_t row, int64_t columns) {
  C* own = sums + row / kRowsPerSum * columns;
  if (row % kRowsPerSum == 0) std::fill_n(own, columns, C{0});
  return own;
}

template <class T>
HWY_INLINE void gelu_backward_rows(const Rows& rows, const GeluBackward<T>& a) {
  const hn::ScalableTag<ComputedIn<T>> d;
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    const int64_t start = row * rows.columns;
    auto* sums = sums_of(a.sums, row, rows.columns);
    for_columns(d, rows.columns, [&](int64_t i, auto at) HWY_ATTR {
      const auto v = hn::Add(at.read(a.x + start + i), at.read(a.bias + i));
      const auto gx = hn::Mul(at.read(a.g + start + i), gelu_slope(d, v));
      at.write(gx, a.gx + start + i);
      at.write(hn::Add(at.read(sums + i), gx), sums + i);
    });
  }
}

/// Mean and one over the deviation of a row.
template <class D, class C = hn::TFromD<D>>
HWY_INLINE void moments(D d, const C* row, int64_t columns, C epsilon, C& mean, C& inverse) {
  auto total = hn::Zero(d);
  for_columns(d, columns,
              [&](int64_t i, auto at) HWY_ATTR { total = hn::Add(total, at.read(row + i)); });
  mean = sum_of(d, total) / static_cast<C>(columns);
  const auto centre = hn::Set(d, mean);
  auto squares = hn::Zero(d);
  for_columns(d, columns, [&](int64_t i, auto at) HWY_ATTR {
    const auto off = at.keep(hn::Sub(at.read(row + i), centre));
    squares = hn::MulAdd(off, off, squares);
  });
  inverse = C{1} / std::sqrt(sum_of(d, squares) / static_cast<C>(columns) + epsilon);
}

template <class T>
HWY_INLINE void norm_forward_rows(const Rows& rows, const NormForward<T>& a) {
  using C = ComputedIn<T>;
  const hn::ScalableTag<C> d;
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    const int64_t start = row * rows.columns;
    const C* in = a.residual + start;
    if (a.delta != nullptr) {
      C* sum = a.sum + start;
      for_columns(d, rows.columns, [&](int64_t i, auto at) HWY_ATTR {
        auto v = hn::Add(at.read(in + i), at.read(a.delta + start + i));
        if (a.delta_bias != nullptr) v = hn::Add(v, at.read(a.delta_bias + i));
        at.write(v, sum + i);
      });
      in = sum;
    }
    moments(d, in, rows.columns, a.epsilon, a.mean[row], a.inverse[row]);
    const auto centre = hn::Set(d, a.mean[row]);
    const auto scale = hn::Set(d, a.inverse[row]);
    for_columns(d, rows.columns, [&](int64_t i, auto at) HWY_ATTR {
      const auto v = hn::Mul(hn::Sub(at.read(in + i), centre), scale);
      at.write(hn::MulAdd(v, at.read(a.weight + i), at.read(a.shift + i)), a.out + start + i);
    });
  }
}

template <class T>
HWY_INLINE void norm_backward_rows(const Rows& rows, const NormBackward<T>& a) {
  using C = ComputedIn<T>;
  const hn::ScalableTag<C> d;
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    const int64_t start = row * rows.columns;
    C* weight_sums = sums_of(a.weight_sums, row, rows.columns);
    C* shift_sums = sums_of(a.shift_sums, row, rows.columns);
    C* gx_sums = sums_of(a.gx_sums, row, rows.columns);
    const auto centre = hn::Set(d, a.mean[row]);
    const auto scale = hn::Set(d, a.inverse[row]);
    auto total = hn::Zero(d), aligned = hn::Zero(d);
    for_columns(d, rows.columns, [&](int64_t i, auto at) HWY_ATTR {
      const auto g = at.read(a.g + start + i);
      const auto v = hn::Mul(hn::Sub(at.read(a.sum + start + i), centre), scale);
      const auto weighted = hn::Mul(g, at.read(a.weight + i));
      total = hn::Add(total, weighted);
      aligned = hn::MulAdd(weighted, v, aligned);
      at.write(hn::MulAdd(g, v, at.read(weight_sums + i)), weight_sums + i);
      at.write(hn::Add(g, at.read(shift_sums + i)), shift_sums + i);
    });
    const auto mean = hn::Set(d, sum_of(d, total) / static_cast<C>(rows.columns));
    const auto slope = hn::Set(d, sum_of(d, aligned) / static_cast<C>(rows.columns));
    for_columns(d, rows.columns, [&](int64_t i, auto at) HWY_ATTR {
      const auto v = hn::Mul(hn::Sub(at.read(a.sum + start + i), centre), scale);
      const auto weighted = hn::Mul(at.read(a.g + start + i), at.read(a.weight + i));
      auto gx = hn::Mul(scale, hn::NegMulAdd(v, slope, hn::Sub(weighted, mean)));
      if (a.g_sum != nullptr) gx = hn::Add(gx, at.read(a.g_sum + start + i));
      at.write(gx, a.gx + start + i);
      if (a.g_delta != nullptr) at.write(gx, a.g_delta + start + i);
      at.write(hn::Add(gx, at.read(gx_sums + i)), gx_sums + i);
    });
  }
}

/// The largest element of a row.
template <class D, class T>
HWY_INLINE hn::TFromD<D> largest(D d, const T* row, int64_t columns) {
  using C = hn::TFromD<D>;
  auto top = hn::Set(d, -std::numeric_limits<C>::infinity());
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= columns; i += lanes) top = hn::Max(top, load(d, row + i));
  if (i < columns) {
    const auto count = static_cast<size_t>(columns - i);
    const auto low = hn::Set(d, -std::numeric_limits<C>::infinity());
    top = hn::Max(top, hn::IfThenElse(hn::FirstN(d, count), load_first(d, row + i, count), low));
  }
  return hn::GetLane(hn::MaxOfLanes(d, top));
}

template <class T>
HWY_INLINE void cross_entropy_rows(const Rows& rows, T* logits, const int64_t* targets,
                                   double* losses, bool overwrite) {
  using C = ComputedIn<T>;
  const hn::ScalableTag<C> d;
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    T* own = logits + row * rows.columns;
    losses[row] = 0;
    if (targets[row] < 0) {
      if (overwrite) std::fill_n(own, rows.columns, T{0});
      continue;
    }
    const C top = largest(d, own, rows.columns);
    const auto shift = hn::Set(d, top);
    auto total = hn::Zero(d);
    for_columns(d, rows.columns, [&](int64_t i, auto at) HWY_ATTR {
      total = hn::Add(total, at.keep(hn::Exp(d, hn::Sub(at.read(own + i), shift))));
    });
    const hn::CappedTag<C, 1> one;
    const C chosen = hn::GetLane(load(one, own + targets[row]));
    const C sum = sum_of(d, total);
    losses[row] = std::log(static_cast<double>(sum)) + (static_cast<double>(top) - chosen);
    if (!overwrite) continue;
    const auto scale = hn::Set(d, C{1} / sum);
    for_columns(d, rows.columns, [&](int64_t i, auto at) HWY_ATTR {
      at.write(hn::Mul(hn::Exp(d, hn::Sub(at.read(own + i), shift)), scale), own + i);
    });
    const C at_target = std::exp(chosen - top) / sum - 1;
    store(hn::Set(one, at_target), one, own + targets[row]);
  }
}

template <class C>
HWY_INLINE void sum_all_rows(const C* matrix, int64_t rows, int64_t columns, C* out) {
  const hn::ScalableTag<C> d;
  for_columns(d, columns, [&](int64_t i, auto at) HWY_ATTR {
    auto total = at.read(matrix + i);
    for (int64_t row = 1; row < rows; ++row) {
      total = hn::Add(total, at.read(matrix + row * columns + i));
    }
    at.write(total, out + i);
  });
}

// One plain function per kernel and type: what run-time dispatch can point to.
#define HANJI_KERNELS(T, Suffix)                                                                   \
  void gelu_forward_##Suffix(const Rows& rows, const T* x, const ComputedIn<T>* bias, T* out) {    \
    gelu_forward_rows<T>(rows, x, bias, out);                                                      \
  }                                                                                                \
  void gelu_backward_##Suffix(const Rows& rows, const GeluBackward<T>& a) {                        \
    gelu_backward_rows<T>(rows, a);                                                                \
  }                                                                                                \
  void norm_forward_##Suffix(const Rows& rows, const NormForward<T>& a) {                          \
    norm_forward_rows<T>(rows, a);                                                                 \
  }                                                                                                \
  void norm_backward_##Suffix(const Rows& rows, const NormBackward<T>& a) {                        \
    norm_backward_rows<T>(rows, a);                                                                \
  }                                                                                                \
  void cross_entropy_##Suffix(const Rows& rows, T* logits, const int64_t* targets, double* losses, \
                              bool overwrite) {                                                    \
    cross_entropy_rows<T>(rows, logits, targets, losses, overwrite);                               \
  }
HANJI_KERNELS(float, f32)
HANJI_KERNELS(double, f64)
HANJI_KERNELS(BFloat16, bf16)
#undef HANJI_KERNELS

void sum_rows_f32(const float* matrix, int64_t rows, int64_t columns, float* out) {
  sum_all_rows(matrix, rows, columns, out);
}
void sum_rows_f64(const double* matrix, int64_t rows, int64_t columns, double* out) {
  sum_all_rows(matrix, rows, columns, out);
}

}  // namespace HWY_NAMESPACE
}  // namespace hanji::compute::internal
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "hanji/base/simd_dispatch.h"

namespace hanji::compute::internal {

#define HANJI_DISPATCH(T, Suffix)                                                            \
  HWY_EXPORT(gelu_forward_##Suffix);                                                         \
  HWY_EXPORT(gelu_backward_##Suffix);                                                        \
  HWY_EXPORT(norm_forward_##Suffix);                                                         \
  HWY_EXPORT(norm_backward_##Suffix);                                                        \
  HWY_EXPORT(cross_entropy_##Suffix);                                                        \
  template <>                                                                                \
  void gelu_forward<T>(const Rows& rows, const T* x, const ComputedIn<T>* bias, T* out) {    \
    HANJI_DISPATCHED(gelu_forward_##Suffix)(rows, x, bias, out);                             \
  }                                                                                          \
  template <>                                                                                \
  void gelu_backward<T>(const Rows& rows, const GeluBackward<T>& a) {                        \
    HANJI_DISPATCHED(gelu_backward_##Suffix)(rows, a);                                       \
  }                                                                                          \
  template <>                                                                                \
  void norm_forward<T>(const Rows& rows, const NormForward<T>& a) {                          \
    HANJI_DISPATCHED(norm_forward_##Suffix)(rows, a);                                        \
  }                                                                                          \
  template <>                                                                                \
  void norm_backward<T>(const Rows& rows, const NormBackward<T>& a) {                        \
    HANJI_DISPATCHED(norm_backward_##Suffix)(rows, a);                                       \
  }                                                                                          \
  template <>                                                                                \
  void cross_entropy<T>(const Rows& rows, T* logits, const int64_t* targets, double* losses, \
                        bool overwrite) {                                                    \
    HANJI_DISPATCHED(cross_entropy_##Suffix)(rows, logits, targets, losses, overwrite);      \
  }
HANJI_DISPATCH(float, f32)
HANJI_DISPATCH(double, f64)
HANJI_DISPATCH(BFloat16, bf16)
#undef HANJI_DISPATCH

HWY_EXPORT(sum_rows_f32);
HWY_EXPORT(sum_rows_f64);
template <>
void sum_rows<float>(const float* matrix, int64_t rows, int64_t columns, float* out) {
  HANJI_DISPATCHED(sum_rows_f32)(matrix, rows, columns, out);
}
template <>
void sum_rows<double>(const double* matrix, int64_t rows, int64_t columns, double* out) {
  HANJI_DISPATCHED(sum_rows_f64)(matrix, rows, columns, out);
}

}  // namespace hanji::compute::internal
#endif
