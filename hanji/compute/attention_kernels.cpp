#include "hanji/compute/internal/attention_kernels.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "hanji/base/attention_extent.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "hanji/compute/attention_kernels.cpp"
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4)
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

// clang-format off: math-inl.h must follow highway.h
#include <hwy/contrib/math/math-inl.h>
#include "hanji/compute/internal/attention-inl.h"
// clang-format on

// Layouts of the scratch, all rows padded with zeros to whole tiles:
//   plain   [length][size]           row-major, what a product reads one number at a time (left
//                                    operand) or two vectors at a time (right operand)
//   panels  [length / n][size][n]    a transposed matrix cut into column panels of n = 2 vectors,
//                                    so that a tile walks contiguous memory
//   band    [64][length + 16]        scores of 64 queries; the odd row length spreads a column
//                                    over the sets of the first cache
HWY_BEFORE_NAMESPACE();
namespace hanji::compute::internal {
namespace HWY_NAMESPACE {

constexpr int64_t kTileRows = HWY_TARGET == HWY_AVX3 ? 8 : 4;
constexpr int64_t kGroup = base::AttentionExtent::kGroup;  // a multiple of kTileRows
constexpr int64_t kBand = base::AttentionExtent::kBand;

constexpr int64_t round_up(int64_t n, int64_t multiple) {
  return base::AttentionExtent::round_up(n, multiple);
}

template <class C>
int64_t panel() {
  return 2 * static_cast<int64_t>(hn::Lanes(hn::ScalableTag<C>()));
}

using Extent = base::AttentionExtent;

template <class C>
Extent extent(int64_t length, int64_t size) {
  return Extent::of(length, size, panel<C>());
}

/// The left operand: element (row, k) lies at data[row * row_stride + k * k_stride].
template <class C>
struct Left {
  const C* data;
  int64_t row_stride, k_stride;
};

/// c[kTileRows][2 vectors] = left x right over `depth`, or added to c.
template <bool kAdd, class D, class C = hn::TFromD<D>>
HWY_INLINE void tile(D d, int64_t depth, const Left<C>& left, const C* HWY_RESTRICT right,
                     int64_t right_stride, C* HWY_RESTRICT c, int64_t c_stride) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  hn::Vec<D> low[kTileRows], high[kTileRows];
  HWY_UNROLL(8)
  for (int64_t r = 0; r < kTileRows; ++r) {
    low[r] = kAdd ? hn::Load(d, c + r * c_stride) : hn::Zero(d);
    high[r] = kAdd ? hn::Load(d, c + r * c_stride + lanes) : hn::Zero(d);
  }
  const C* a = left.data;
  for (int64_t k = 0; k < depth; ++k, a += left.k_stride, right += right_stride) {
    const auto b0 = hn::Load(d, right);
    const auto b1 = hn::Load(d, right + lanes);
    HWY_UNROLL(8)
    for (int64_t r = 0; r < kTileRows; ++r) {
      const auto v = hn::Set(d, a[r * left.row_stride]);
      low[r] = hn::MulAdd(v, b0, low[r]);
      high[r] = hn::MulAdd(v, b1, high[r]);
    }
  }
  HWY_UNROLL(8)
  for (int64_t r = 0; r < kTileRows; ++r) {
    hn::Store(low[r], d, c + r * c_stride);
    hn::Store(high[r], d, c + r * c_stride + lanes);
  }
}

/// kGroup rows times a right operand in plain layout: c[kGroup][columns].
template <bool kAdd, class D, class C = hn::TFromD<D>>
HWY_INLINE void multiply(D d, int64_t depth, Left<C> left, const C* right, int64_t columns, C* c) {
  const int64_t step = 2 * static_cast<int64_t>(hn::Lanes(d));
  for (int64_t r = 0; r < kGroup; r += kTileRows) {
    for (int64_t j = 0; j < columns; j += step) {
      tile<kAdd>(d, depth, left, right + j, columns, c + r * columns + j, columns);
    }
    left.data += kTileRows * left.row_stride;
  }
}

/// kGroup rows of scores: c[kGroup][keys], the right operand in panels.
template <class D, class C = hn::TFromD<D>>
HWY_INLINE void multiply_panels(D d, int64_t depth, const C* left, const C* panels, int64_t keys,
                                C* c, int64_t c_stride) {
  const int64_t step = 2 * static_cast<int64_t>(hn::Lanes(d));
  for (int64_t j = 0; j < keys; j += step) {
    for (int64_t r = 0; r < kGroup; r += kTileRows) {
      tile<false>(d, depth, {left + r * depth, depth, 1}, panels + j * depth, step,
                  c + r * c_stride + j, c_stride);
    }
  }
}

/// (in + bias) * scale of every token, in plain layout.
template <class T, class C = ComputedIn<T>>
HWY_INLINE void pack(const Extent& e, int64_t size, const T* in, int64_t stride, const C* bias,
                     C scale, C* out) {
  const hn::ScalableTag<C> d;
  const auto factor = hn::Set(d, scale);
  for (int64_t t = 0; t < e.length; ++t) {
    const T* from = in + t * stride;
    C* to = out + t * e.size;
    for_columns(d, size, [&](int64_t i, auto at) HWY_ATTR {
      auto v = at.read(from + i);
      if (bias != nullptr) v = hn::Mul(hn::Add(v, at.read(bias + i)), factor);
      at.write(v, to + i);
    });
    std::fill(to + size, to + e.size, C{0});
  }
  std::fill(out + e.length * e.size, out + e.rows * e.size, C{0});
}

/// Plain to panels: out[j / n][i][j % n] = in[j][i].
template <class C>
HWY_INLINE void transpose(const Extent& e, const C* in, C* out) {
  const int64_t n = panel<C>();
  for (int64_t j = 0; j < e.columns; j += n) {
    for (int64_t lane = 0; lane < n; ++lane) {
      C* to = out + j * e.size + lane;
      for (int64_t i = 0; i < e.size; ++i) {
        to[i * n] = j + lane < e.rows ? in[(j + lane) * e.size + i] : C{0};
      }
    }
  }
}

/// Turns a row of scores into exp(score - shift) for keys up to `last`, zeros to `end`.
template <class D, class C = hn::TFromD<D>>
HWY_INLINE C exponentials(D d, C* row, int64_t last, int64_t end, C shift) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  std::fill(row + last + 1, row + end, -std::numeric_limits<C>::infinity());
  const auto offset = hn::Set(d, shift);
  auto total = hn::Zero(d);
  for (int64_t j = 0; j < end; j += lanes) {
    const auto v = hn::Exp(d, hn::Sub(hn::Load(d, row + j), offset));
    total = hn::Add(total, v);
    hn::Store(v, d, row + j);
  }
  return sum_of(d, total);
}

template <class D, class C = hn::TFromD<D>>
HWY_INLINE C largest(D d, const C* row, int64_t last) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto low = hn::Set(d, -std::numeric_limits<C>::infinity());
  auto top = low;
  int64_t j = 0;
  for (; j + lanes <= last + 1; j += lanes) top = hn::Max(top, hn::Load(d, row + j));
  const auto rest = hn::FirstN(d, static_cast<size_t>(last + 1 - j));
  if (j <= last) top = hn::Max(top, hn::IfThenElse(rest, hn::Load(d, row + j), low));
  return hn::GetLane(hn::MaxOfLanes(d, top));
}

/// The scratch of a forward pass.
template <class C>
struct ForwardSpace {
  Extent e;
  C *queries, *keys, *values, *scores, *mixed;

  ForwardSpace(const Extent& extent, C* p) : e(extent), queries(p) {
    keys = queries + e.rows * e.size;
    values = keys + e.columns * e.size;
    scores = values + e.rows * e.size;
    mixed = scores + kGroup * e.band;
  }
};

/// Of one head of queries, packed in w as keys and values are.
template <class T, class C>
HWY_INLINE void forward_queries(const Head<T>& h, const ForwardSpace<C>& w, T* out, C* softmax) {
  const hn::ScalableTag<C> d;
  const Extent& e = w.e;
  for (int64_t first = 0; first < h.length; first += kGroup) {
    const int64_t end = round_up(first + kGroup, panel<C>());
    multiply_panels(d, e.size, w.queries + first * e.size, w.keys, end, w.scores, e.band);
    C inverse[kGroup];
    for (int64_t r = 0; r < kGroup; ++r) {
      C* row = w.scores + r * e.band;
      const C top = largest(d, row, first + r);
      const C sum = exponentials(d, row, first + r, end, top);
      inverse[r] = C{1} / sum;
      if (first + r >= h.length) continue;
      softmax[2 * (first + r)] = top;
      softmax[2 * (first + r) + 1] = inverse[r];
    }
    multiply<false>(d, first + kGroup, {w.scores, e.band, 1}, w.values, e.size, w.mixed);
    for (int64_t r = 0; r < std::min(kGroup, h.length - first); ++r) {
      const auto factor = hn::Set(d, inverse[r]);
      T* to = out + (first + r) * h.width;
      for_columns(d, h.size, [&](int64_t i, auto at) HWY_ATTR {
        at.write(hn::Mul(at.read(w.mixed + r * e.size + i), factor), to + i);
      });
    }
  }
}

template <class T>
HWY_INLINE void forward_head(const Head<T>& h, T* out, ComputedIn<T>* softmax,
                             ComputedIn<T>* scratch) {
  using C = ComputedIn<T>;
  const ForwardSpace<C> w(extent<C>(h.length, h.size), scratch);
  const C scale = C{1} / std::sqrt(static_cast<C>(h.size));
  pack(w.e, h.size, h.qkv + h.keys, h.row, h.bias + h.keys, C{1}, w.values);
  transpose(w.e, w.values, w.keys);
  pack(w.e, h.size, h.qkv + h.values, h.row, h.bias + h.values, C{1}, w.values);
  for (int64_t query = 0; query < h.group; ++query) {
    const int64_t offset = query * h.size;
    pack(w.e, h.size, h.qkv + offset, h.row, h.bias + offset, scale, w.queries);
    forward_queries(h, w, out + offset, softmax + 2 * query * h.length);
  }
}

/// The scratch of a backward pass.
template <class C>
struct Workspace {
  Extent e;
  C *queries, *keys, *values, *keys_panels, *values_panels, *g_out, *g_keys, *g_values;
  C *weights, *slopes, *g_query;

  Workspace(const Extent& extent, C* p) : e(extent) {
    const int64_t plain = e.rows * e.size;
    for (C** part : {&queries, &keys, &values, &g_out, &g_keys, &g_values}) {
      *part = p;
      p += plain;
    }
    keys_panels = p;
    values_panels = keys_panels + e.columns * e.size;
    weights = values_panels + e.columns * e.size;
    slopes = weights + kBand * e.band;
    g_query = slopes + kBand * e.band;
  }
};

/// Weights and slopes of kGroup queries from `first`, and the gradient of those queries.
template <class T, class C>
HWY_INLINE void backward_group(const Head<T>& h, const AttentionBackward<T>& a,
                               const Workspace<C>& w, int64_t first, C* weights, C* slopes) {
  const hn::ScalableTag<C> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t end = round_up(first + kGroup, panel<C>());
  multiply_panels(d, w.e.size, w.queries + first * w.e.size, w.keys_panels, end, weights, w.e.band);
  multiply_panels(d, w.e.size, w.g_out + first * w.e.size, w.values_panels, end, slopes, w.e.band);
  for (int64_t r = 0; r < kGroup; ++r) {
    C* weight = weights + r * w.e.band;
    C* slope = slopes + r * w.e.band;
    const int64_t t = first + r;
    const bool real = t < h.length;
    exponentials(d, weight, real ? t : int64_t{-1}, end, real ? a.softmax[2 * t] : C{0});
    const auto inverse = hn::Set(d, real ? a.softmax[2 * t + 1] : C{0});
    auto total = hn::Zero(d);
    for (int64_t j = 0; j < end; j += lanes) {
      const auto v = hn::Mul(hn::Load(d, weight + j), inverse);
      hn::Store(v, d, weight + j);
      total = hn::MulAdd(v, hn::Load(d, slope + j), total);
    }
    // Equal to g_out . out, but then the row of slopes would not sum to zero.
    const auto mean = hn::Set(d, sum_of(d, total));
    for (int64_t j = 0; j < end; j += lanes) {
      const auto off = hn::Sub(hn::Load(d, slope + j), mean);
      hn::Store(hn::Mul(hn::Load(d, weight + j), off), d, slope + j);
    }
  }
  multiply<false>(d, first + kGroup, {slopes, w.e.band, 1}, w.keys, w.e.size, w.g_query);
  emit(h, std::min(kGroup, h.length - first), w.g_query, w.e.size,
       C{1} / std::sqrt(static_cast<C>(h.size)), a.g_qkv + first * h.row, a.bias_sums);
}

/// Of one head of queries, packed in w as keys and values are; adds to the gradients of those.
template <class T, class C>
HWY_INLINE void backward_queries(const Head<T>& h, const AttentionBackward<T>& a,
                                 const Workspace<C>& w) {
  const hn::ScalableTag<C> d;
  const Extent& e = w.e;
  std::fill_n(a.bias_sums, h.size, C{0});
  for (int64_t band = 0; band < h.length; band += kBand) {
    const int64_t band_end = std::min(band + kBand, round_up(h.length, kGroup));
    for (int64_t first = band; first < band_end; first += kGroup) {
      const int64_t row = (first - band) * e.band;
      backward_group(h, a, w, first, w.weights + row, w.slopes + row);
    }
    // Keys of a diagonal group are seen only by the queries from that group on.
    for (int64_t key = 0; key < band_end; key += kGroup) {
      const int64_t from = std::max(band, key);
      const int64_t corner = (from - band) * e.band + key;
      multiply<true>(d, band_end - from, {w.weights + corner, 1, e.band}, w.g_out + from * e.size,
                     e.size, w.g_values + key * e.size);
      multiply<true>(d, band_end - from, {w.slopes + corner, 1, e.band}, w.queries + from * e.size,
                     e.size, w.g_keys + key * e.size);
    }
  }
}

template <class T>
HWY_INLINE void backward_head(const Head<T>& h, const AttentionBackward<T>& a,
                              ComputedIn<T>* scratch) {
  using C = ComputedIn<T>;
  const Workspace<C> w(extent<C>(h.length, h.size), scratch);
  const Extent& e = w.e;
  const C scale = C{1} / std::sqrt(static_cast<C>(h.size));
  pack(e, h.size, h.qkv + h.keys, h.row, h.bias + h.keys, C{1}, w.keys);
  pack(e, h.size, h.qkv + h.values, h.row, h.bias + h.values, C{1}, w.values);
  transpose(e, w.keys, w.keys_panels);
  transpose(e, w.values, w.values_panels);
  std::fill_n(w.g_keys, e.rows * e.size, C{0});
  std::fill_n(w.g_values, e.rows * e.size, C{0});
  for (int64_t query = 0; query < h.group; ++query) {
    const int64_t offset = query * h.size;
    const AttentionBackward<T> own{a.g_out + offset, a.softmax + 2 * query * h.length,
                                   a.g_qkv + offset, a.bias_sums + offset};
    pack(e, h.size, h.qkv + offset, h.row, h.bias + offset, scale, w.queries);
    pack(e, h.size, own.g_out, h.width, static_cast<const C*>(nullptr), C{1}, w.g_out);
    backward_queries(h, own, w);
  }
  emit_all(h, e.size, w.g_keys, C{1}, a.g_qkv + h.keys, a.bias_sums + h.keys);
  emit_all(h, e.size, w.g_values, C{1}, a.g_qkv + h.values, a.bias_sums + h.values);
}

template <class C>
size_t forward_elements(int64_t length, int64_t size) {
  return static_cast<size_t>(extent<C>(length, size).forward_elements());
}
template <class C>
size_t backward_elements(int64_t length, int64_t size) {
  return static_cast<size_t>(extent<C>(length, size).backward_elements());
}

// One plain function per kernel and type: what run-time dispatch can point to.
#define HANJI_KERNELS(T, Suffix)                                             \
  void forward_##Suffix(const Head<T>& head, T* out, ComputedIn<T>* softmax, \
                        ComputedIn<T>* scratch) {                            \
    forward_head<T>(head, out, softmax, scratch);                            \
  }                                                                          \
  void backward_##Suffix(const Head<T>& head, const AttentionBackward<T>& a, \
                         ComputedIn<T>* scratch) {                           \
    backward_head<T>(head, a, scratch);                                      \
  }
HANJI_KERNELS(float, f32)
HANJI_KERNELS(double, f64)
HANJI_KERNELS(BFloat16, bf16)
#undef HANJI_KERNELS

size_t forward_elements_f32(int64_t length, int64_t size) {
  return forward_elements<float>(length, size);
}
size_t forward_elements_f64(int64_t length, int64_t size) {
  return forward_elements<double>(length, size);
}
size_t backward_elements_f32(int64_t length, int64_t size) {
  return backward_elements<float>(length, size);
}
size_t backward_elements_f64(int64_t length, int64_t size) {
  return backward_elements<double>(length, size);
}

}  // namespace HWY_NAMESPACE
}  // namespace hanji::compute::internal
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "hanji/base/simd_dispatch.h"

namespace hanji::compute::internal {

#define HANJI_DISPATCH(T, Suffix)                                                \
  HWY_EXPORT(forward_##Suffix);                                                  \
  HWY_EXPORT(backward_##Suffix);                                                 \
  template <>                                                                    \
  void attention_forward<T>(const Head<T>& head, T* out, ComputedIn<T>* softmax, \
                            ComputedIn<T>* scratch) {                            \
    HANJI_DISPATCHED(forward_##Suffix)(head, out, softmax, scratch);             \
  }                                                                              \
  template <>                                                                    \
  void attention_backward<T>(const Head<T>& head, const AttentionBackward<T>& a, \
                             ComputedIn<T>* scratch) {                           \
    HANJI_DISPATCHED(backward_##Suffix)(head, a, scratch);                       \
  }
HANJI_DISPATCH(float, f32)
HANJI_DISPATCH(double, f64)
HANJI_DISPATCH(BFloat16, bf16)
#undef HANJI_DISPATCH

HWY_EXPORT(forward_elements_f32);
HWY_EXPORT(forward_elements_f64);
HWY_EXPORT(backward_elements_f32);
HWY_EXPORT(backward_elements_f64);
template <>
size_t attention_forward_scratch<float>(int64_t length, int64_t size) {
  return HANJI_DISPATCHED(forward_elements_f32)(length, size);
}
template <>
size_t attention_forward_scratch<double>(int64_t length, int64_t size) {
  return HANJI_DISPATCHED(forward_elements_f64)(length, size);
}
template <>
size_t attention_backward_scratch<float>(int64_t length, int64_t size) {
  return HANJI_DISPATCHED(backward_elements_f32)(length, size);
}
template <>
size_t attention_backward_scratch<double>(int64_t length, int64_t size) {
  return HANJI_DISPATCHED(backward_elements_f64)(length, size);
}

}  // namespace hanji::compute::internal
#endif
