#include "hanji/compute/internal/tile_attention_kernels.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <utility>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "hanji/compute/tile_attention_kernels.cpp"
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4)
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "hanji/compute/internal/tiles-inl.h"

// Scores are transposed, [keys][queries]: the statistics of the softmax are then vectors over queries, and
// weights are left operands of the products into gradients as they are computed. Layouts of bf16, rows
// padded with zeros:
//   plain        [length][size]                what lies at the left of a product
//   transposed   [length / keys][size][keys]   the same of a sum over keys
//   pairs        [rows / 2][columns][2]        what lies at the right
HWY_BEFORE_NAMESPACE();
namespace hanji::compute::internal {
namespace HWY_NAMESPACE {

constexpr int64_t kBandQueries = TileExtent::kBand;

/// Every query sees the key.
struct SeenByAll {
  HWY_INLINE Vector or_zero(Vector v, int64_t) const { return v; }
  HWY_INLINE Vector or_lowest(Vector v, int64_t) const { return v; }
};

/// Queries see the key from `first` of them on.
struct SeenFrom {
  int64_t first;
  HWY_INLINE auto mask(int64_t vector) const {
    const Floats d;
    return hn::Ge(hn::Iota(d, static_cast<float>(vector * kLanes)),
                  hn::Set(d, static_cast<float>(first)));
  }
  HWY_INLINE Vector or_zero(Vector v, int64_t vector) const {
    return hn::IfThenElseZero(mask(vector), v);
  }
  HWY_INLINE Vector or_lowest(Vector v, int64_t vector) const {
    return hn::IfThenElse(mask(vector), v,
                          hn::Set(Floats(), -std::numeric_limits<float>::infinity()));
  }
};

/// body(row, queries that see it) of `rows` keys from `key`, for the queries from `first` on.
template <class Body>
HWY_INLINE void for_keys(int64_t key, int64_t rows, int64_t first, const Body& body) {
  const int64_t diagonal = std::clamp<int64_t>(first - key, 0, rows);
  for (int64_t row = 0; row < diagonal; ++row) body(row, SeenByAll());
  for (int64_t row = diagonal; row < rows; ++row) body(row, SeenFrom{key + row - first});
}

/// body(row of the first, queries that see it, queries that see the second) of pairs of keys.
template <class Body>
HWY_INLINE void for_key_pairs(int64_t key, int64_t rows, int64_t first, const Body& body) {
  const int64_t diagonal = std::clamp<int64_t>(first - key, 0, rows);
  for (int64_t row = 0; row < diagonal; row += 2) body(row, SeenByAll(), SeenByAll());
  for (int64_t row = diagonal; row < rows; row += 2) {
    body(row, SeenFrom{key + row - first}, SeenFrom{key + row + 1 - first});
  }
}

HWY_INLINE void load_softmax(const float* softmax, int64_t count, PerQuery& top,
                             PerQuery& inverse) {
  HWY_ALIGN float tops[kQueries] = {}, inverses[kQueries] = {};
  for (int64_t q = 0; q < count; ++q) {
    tops[q] = softmax[2 * q];
    inverses[q] = softmax[2 * q + 1];
  }
  for (int64_t v = 0; v < kVectors; ++v) {
    top.v[v] = hn::Load(Floats(), tops + v * kLanes);
    inverse.v[v] = hn::Load(Floats(), inverses + v * kLanes);
  }
}

HWY_INLINE void store_softmax(const PerQuery& top, const PerQuery& inverse, int64_t count,
                              float* softmax) {
  HWY_ALIGN float tops[kQueries], inverses[kQueries];
  for (int64_t v = 0; v < kVectors; ++v) {
    hn::Store(top.v[v], Floats(), tops + v * kLanes);
    hn::Store(inverse.v[v], Floats(), inverses + v * kLanes);
  }
  for (int64_t q = 0; q < count; ++q) {
    softmax[2 * q] = tops[q];
    softmax[2 * q + 1] = inverses[q];
  }
}

/// The scratch of a pass; parts follow one another.
struct Parts {
  float* p;
  float* floats(int64_t count) { return std::exchange(p, p + count); }
  uint32_t* words(int64_t count) { return reinterpret_cast<uint32_t*>(floats(count)); }
  BFloat16* halves(int64_t count) { return reinterpret_cast<BFloat16*>(floats(count / 2)); }
};

HWY_INLINE const BFloat16* halves_of(const uint32_t* words) {
  return reinterpret_cast<const BFloat16*>(words);
}

struct TileForward {
  TileExtent e;
  TileProduct product;
  float scale;  ///< Scale of scores, in powers of two.
  BFloat16 *keys, *values, *rows;
  uint32_t *queries, *weights;
  float *scores, *mixed, *mixed_rows;

  TileForward(const TileExtent& extent, float scale, float* scratch, TileProduct multiply)
      : e(extent), product(multiply), scale(scale) {
    Parts parts{scratch};
    keys = parts.halves(e.rows * e.size);
    values = parts.halves(e.columns * e.size);
    rows = parts.halves(kQueries * e.size);
    queries = parts.words(e.size / 2 * kQueries);
    weights = parts.words(e.keys / 2 * kQueries);
    scores = parts.floats(e.keys * kQueries);
    mixed = parts.floats(e.size * kQueries);
    mixed_rows = parts.floats(e.size * kQueries);
  }
};

/// What queries have seen so far.
struct Seen {
  PerQuery top, sum;
};

/// Takes the largest of further scores into account: what was added up is scaled to it.
HWY_INLINE void raise_top(const TileForward& w, int64_t key, int64_t rows, int64_t first,
                          Seen& seen) {
  const Floats d;
  PerQuery top = seen.top;
  const auto scale = hn::Set(d, w.scale);
  PerQuery largest;
  for (auto& v : largest.v) v = hn::Set(d, -std::numeric_limits<float>::infinity());
  for_keys(key, rows, first, [&](int64_t row, const auto& sees) HWY_ATTR {
    for (int64_t v = 0; v < kVectors; ++v) {
      const auto score = hn::Load(d, w.scores + row * kQueries + v * kLanes);
      largest.v[v] = hn::Max(largest.v[v], sees.or_lowest(score, v));
    }
  });
  for (int64_t v = 0; v < kVectors; ++v) {
    seen.top.v[v] = hn::Max(top.v[v], hn::Mul(largest.v[v], scale));
  }
  if (key == 0) return;
  for (int64_t v = 0; v < kVectors; ++v) {
    const auto factor = power_of_two(hn::Sub(top.v[v], seen.top.v[v]));
    seen.sum.v[v] = hn::Mul(seen.sum.v[v], factor);
    for (int64_t i = 0; i < w.e.size; ++i) {
      float* const p = w.mixed + i * kQueries + v * kLanes;
      hn::Store(hn::Mul(hn::Load(d, p), factor), d, p);
    }
  }
}

/// Weights of some keys, not yet divided by their sum: pairs of keys, in bf16.
HWY_INLINE void weigh(const TileForward& w, int64_t key, int64_t rows, int64_t first, Seen& seen) {
  const Floats d;
  const auto scale = hn::Set(d, w.scale);
  const PerQuery top = seen.top;
  PerQuery sum = seen.sum;
  const auto weight_of = [&](int64_t row, int64_t v, const auto& sees) HWY_ATTR {
    const auto score = hn::Load(d, w.scores + row * kQueries + v * kLanes);
    const auto weight = sees.or_zero(power_of_two(hn::MulSub(score, scale, top.v[v])), v);
    sum.v[v] = hn::Add(sum.v[v], weight);
    return rounded(weight);
  };
  for_key_pairs(key, rows, first, [&](int64_t row, const auto& one, const auto& other) HWY_ATTR {
    for (int64_t v = 0; v < kVectors; ++v) {
      const auto even = weight_of(row, v, one);
      const auto odd = weight_of(row + 1, v, other);
      hn::Store(pair(even, odd), Words(), w.weights + row / 2 * kQueries + v * kLanes);
    }
  });
  seen.sum = sum;
}

HWY_INLINE void emit_mixed(const Head<BFloat16>& h, const TileForward& w, int64_t first,
                           const Seen& seen, BFloat16* out, float* softmax) {
  const Floats d;
  const int64_t count = std::min(kQueries, h.length - first);
  PerQuery inverse;
  for (int64_t v = 0; v < kVectors; ++v) {
    inverse.v[v] = hn::Div(hn::Set(d, 1.0F), seen.sum.v[v]);
  }
  store_softmax(seen.top, inverse, count, softmax + 2 * first);
  transpose_words(as_words(w.mixed), w.e.size, kQueries,
                  [&](int64_t row, int64_t column, WordVector v) HWY_ATTR {
                    hn::Store(hn::BitCast(d, v), d, w.mixed_rows + row * w.e.size + column);
                  });
  for (int64_t q = 0; q < count; ++q) {
    BFloat16* const to = out + (first + q) * h.width;
    const auto factor = hn::Set(d, softmax[2 * (first + q) + 1]);
    for_columns(d, h.size, [&](int64_t i, auto at) HWY_ATTR {
      at.write(hn::Mul(at.read(w.mixed_rows + q * w.e.size + i), factor), to + i);
    });
  }
}

/// kQueries of one head from `first` on.
HWY_INLINE void forward_tile(const Head<BFloat16>& h, const TileForward& w, int64_t first,
                             int64_t offset, BFloat16* out, float* softmax) {
  const Floats d;
  const TileExtent& e = w.e;
  const BFloat16* const queries = h.qkv + first * h.row + offset;
  round_rows(h, queries, h.row, h.bias + offset, h.length - first, kQueries, e.size, w.rows);
  pair_features(w.rows, e.size, w.queries);
  Seen seen;
  for (int64_t v = 0; v < kVectors; ++v) {
    seen.top.v[v] = hn::Set(d, -std::numeric_limits<float>::infinity());
    seen.sum.v[v] = hn::Zero(d);
  }
  for (int64_t key = 0; key < first + kQueries; key += e.keys) {
    const int64_t rows = std::min(e.keys, first + kQueries - key);
    w.product({rows, kQueries, e.size, e.size, kQueries, kQueries, false}, w.keys + key * e.size,
              halves_of(w.queries), w.scores);
    raise_top(w, key, rows, first, seen);
    weigh(w, key, rows, first, seen);
    w.product({e.size, kQueries, rows, e.keys, kQueries, kQueries, key > 0},
              w.values + key * e.size, halves_of(w.weights), w.mixed);
  }
  emit_mixed(h, w, first, seen, out, softmax);
}

void tile_forward(const Head<BFloat16>& h, BFloat16* out, float* softmax, float* scratch,
                  TileProduct product) {
  const auto e = TileExtent::of(h.length, h.size);
  const float scale = 1 / std::sqrt(static_cast<float>(h.size));
  const TileForward w(e, scale * std::numbers::log2e_v<float>, scratch, product);
  round_rows(h, h.qkv + h.values, h.row, h.bias + h.values, h.length, e.rows, e.size, w.keys);
  transpose_tokens(e, w.keys, w.values);
  round_rows(h, h.qkv + h.keys, h.row, h.bias + h.keys, h.length, e.rows, e.size, w.keys);
  for (int64_t query = 0; query < h.group; ++query) {
    const int64_t offset = query * h.size;
    for (int64_t first = 0; first < h.length; first += kQueries) {
      forward_tile(h, w, first, offset, out + offset, softmax + 2 * query * h.length);
    }
  }
}

struct TileBackward {
  TileExtent e;
  TileProduct product;
  float scale, power_scale;
  BFloat16 *keys, *keys_transposed, *values, *rows, *weights, *slopes;
  uint32_t *queries, *g_out, *slope_pairs;    ///< Operands of one tile.
  uint32_t *queries_of_band, *g_out_of_band;  ///< Pairs of tokens.
  float *g_keys, *g_values, *scores, *score_slopes, *g_queries, *g_query_rows;

  TileBackward(const TileExtent& extent, float scale, float* scratch, TileProduct multiply)
      : e(extent),
        product(multiply),
        scale(scale),
        power_scale(scale * std::numbers::log2e_v<float>) {
    Parts parts{scratch};
    keys = parts.halves(e.rows * e.size);
    keys_transposed = parts.halves(e.columns * e.size);
    values = parts.halves(e.rows * e.size);
    g_keys = parts.floats(e.rows * e.size);
    g_values = parts.floats(e.rows * e.size);
    queries_of_band = parts.words(kBandQueries / 2 * e.size);
    g_out_of_band = parts.words(kBandQueries / 2 * e.size);
    weights = parts.halves(e.rows * kBandQueries);
    slopes = parts.halves(e.rows * kBandQueries);
    rows = parts.halves(kQueries * e.size);
    queries = parts.words(e.size / 2 * kQueries);
    g_out = parts.words(e.size / 2 * kQueries);
    slope_pairs = parts.words(e.keys / 2 * kQueries);
    scores = parts.floats(e.rows * kQueries);
    score_slopes = parts.floats(e.rows * kQueries);
    g_queries = parts.floats(e.size * kQueries);
    g_query_rows = parts.floats(e.size * kQueries);
  }
};

/// Weights of some keys in place of their scores; adds their products with their gradients to `mean`.
HWY_INLINE void weigh_again(const TileBackward& w, int64_t key, int64_t rows, int64_t first,
                            const PerQuery& top, const PerQuery& inverse, PerQuery& mean) {
  const Floats d;
  const auto scale = hn::Set(d, w.power_scale);
  float* const scores = w.scores + key * kQueries;
  const float* const slopes = w.score_slopes + key * kQueries;
  PerQuery sum = mean;
  for_keys(key, rows, first, [&](int64_t row, const auto& sees) HWY_ATTR {
    for (int64_t v = 0; v < kVectors; ++v) {
      const int64_t at = row * kQueries + v * kLanes;
      const auto power = power_of_two(hn::MulSub(hn::Load(d, scores + at), scale, top.v[v]));
      const auto weight = sees.or_zero(hn::Mul(power, inverse.v[v]), v);
      sum.v[v] = hn::MulAdd(weight, hn::Load(d, slopes + at), sum.v[v]);
      hn::Store(weight, d, scores + at);
    }
  });
  mean = sum;
}

/// Weights and gradients of scores of some keys in bf16: to column `column` of the band, and pairs of keys.
HWY_INLINE void slope(const TileBackward& w, int64_t key, int64_t rows, int64_t column,
                      const PerQuery& mean) {
  const Floats d;
  WordVector of_row[2][kVectors];
  for (int64_t row = 0; row < rows; ++row) {
    WordVector weights[kVectors];
    WordVector* const slopes = of_row[row % 2];
    const int64_t at = (key + row) * kQueries, to = (key + row) * kBandQueries + column;
    for (int64_t v = 0; v < kVectors; ++v) {
      const auto weight = hn::Load(d, w.scores + at + v * kLanes);
      const auto off = hn::Sub(hn::Load(d, w.score_slopes + at + v * kLanes), mean.v[v]);
      weights[v] = rounded(weight);
      slopes[v] = rounded(hn::Mul(weight, off));
    }
    for (int64_t v = 0; v < kVectors; v += 2) {
      store_upper_halves(weights[v], weights[v + 1], w.weights + to + v * kLanes);
      store_upper_halves(slopes[v], slopes[v + 1], w.slopes + to + v * kLanes);
    }
    if (row % 2 == 0) continue;
    for (int64_t v = 0; v < kVectors; ++v) {
      hn::Store(pair(of_row[0][v], of_row[1][v]), Words(),
                w.slope_pairs + row / 2 * kQueries + v * kLanes);
    }
  }
}

HWY_INLINE void emit_g_queries(const Head<BFloat16>& h, const AttentionBackward<BFloat16>& a,
                               const TileBackward& w, int64_t first) {
  const Floats d;
  transpose_words(as_words(w.g_queries), w.e.size, kQueries,
                  [&](int64_t row, int64_t column, WordVector v) HWY_ATTR {
                    hn::Store(hn::BitCast(d, v), d, w.g_query_rows + row * w.e.size + column);
                  });
  emit(h, std::min(kQueries, h.length - first), w.g_query_rows, w.e.size, w.scale,
       a.g_qkv + first * h.row, a.bias_sums);
}

/// kQueries of one head from `first` on, at a column of a band; `offset`: of the head in qkv.
HWY_INLINE void backward_tile(const Head<BFloat16>& h, const AttentionBackward<BFloat16>& a,
                              const TileBackward& w, int64_t first, int64_t column,
                              int64_t offset) {
  const Floats d;
  const TileExtent& e = w.e;
  const int64_t left = h.length - first, end = first + kQueries;
  round_rows(h, a.g_out + first * h.width, h.width, nullptr, left, kQueries, e.size, w.rows);
  pair_features(w.rows, e.size, w.g_out);
  pair_tokens(w.rows, e.size, w.g_out_of_band + column / 2 * e.size);
  round_rows(h, h.qkv + first * h.row + offset, h.row, h.bias + offset, left, kQueries, e.size,
             w.rows);
  pair_features(w.rows, e.size, w.queries);
  pair_tokens(w.rows, e.size, w.queries_of_band + column / 2 * e.size);
  PerQuery top, inverse, mean;
  load_softmax(a.softmax + 2 * first, std::min(kQueries, left), top, inverse);
  for (auto& v : mean.v) v = hn::Zero(d);
  for (int64_t key = 0; key < end; key += e.keys) {
    const int64_t rows = std::min(e.keys, end - key);
    const TileShape shape{rows, kQueries, e.size, e.size, kQueries, kQueries, false};
    w.product(shape, w.keys + key * e.size, halves_of(w.queries), w.scores + key * kQueries);
    w.product(shape, w.values + key * e.size, halves_of(w.g_out), w.score_slopes + key * kQueries);
    weigh_again(w, key, rows, first, top, inverse, mean);
  }
  for (int64_t key = 0; key < end; key += e.keys) {
    const int64_t rows = std::min(e.keys, end - key);
    slope(w, key, rows, column, mean);
    w.product({e.size, kQueries, rows, e.keys, kQueries, kQueries, key > 0},
              w.keys_transposed + key * e.size, halves_of(w.slope_pairs), w.g_queries);
  }
  emit_g_queries(h, a, w, first);
}

/// Adds what the queries [band, end) give the keys that they see.
HWY_INLINE void add_to_keys(const TileBackward& w, int64_t band, int64_t end) {
  const TileExtent& e = w.e;
  const auto add = [&](int64_t key, int64_t rows, int64_t from) {
    const TileShape shape{rows, e.size, end - band - from, kBandQueries, e.size, e.size, true};
    const int64_t left = key * kBandQueries + from, right = from / 2 * e.size;
    w.product(shape, w.weights + left, halves_of(w.g_out_of_band + right),
              w.g_values + key * e.size);
    w.product(shape, w.slopes + left, halves_of(w.queries_of_band + right),
              w.g_keys + key * e.size);
  };
  for (int64_t key = 0; key < band; key += e.keys) add(key, std::min(e.keys, band - key), 0);
  // Keys of a diagonal tile are seen only by the queries from that tile on.
  for (int64_t key = band; key < end; key += kQueries) add(key, kQueries, key - band);
}

void tile_backward(const Head<BFloat16>& h, const AttentionBackward<BFloat16>& a, float* scratch,
                   TileProduct product) {
  const auto e = TileExtent::of(h.length, h.size);
  const TileBackward w(e, 1 / std::sqrt(static_cast<float>(h.size)), scratch, product);
  round_rows(h, h.qkv + h.keys, h.row, h.bias + h.keys, h.length, e.rows, e.size, w.keys);
  round_rows(h, h.qkv + h.values, h.row, h.bias + h.values, h.length, e.rows, e.size, w.values);
  transpose_tokens(e, w.keys, w.keys_transposed);
  std::fill_n(w.g_keys, e.rows * e.size, 0.0F);
  std::fill_n(w.g_values, e.rows * e.size, 0.0F);
  for (int64_t query = 0; query < h.group; ++query) {
    const int64_t offset = query * h.size;
    const AttentionBackward<BFloat16> own{a.g_out + offset, a.softmax + 2 * query * h.length,
                                          a.g_qkv + offset, a.bias_sums + offset};
    std::fill_n(own.bias_sums, h.size, 0.0F);
    for (int64_t band = 0; band < h.length; band += kBandQueries) {
      const int64_t end = std::min(band + kBandQueries, e.rows);
      for (int64_t first = band; first < end; first += kQueries) {
        backward_tile(h, own, w, first, first - band, offset);
      }
      add_to_keys(w, band, end);
    }
  }
  emit_all(h, e.size, w.g_keys, w.scale, a.g_qkv + h.keys, a.bias_sums + h.keys);
  emit_all(h, e.size, w.g_values, 1.0F, a.g_qkv + h.values, a.bias_sums + h.values);
}

}  // namespace HWY_NAMESPACE
}  // namespace hanji::compute::internal
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "hanji/base/simd_dispatch.h"

namespace hanji::compute::internal {

HWY_EXPORT(tile_forward);
HWY_EXPORT(tile_backward);

void tile_attention_forward(const Head<BFloat16>& head, BFloat16* out, float* softmax,
                            float* scratch, TileProduct product) {
  HANJI_DISPATCHED(tile_forward)(head, out, softmax, scratch, product);
}

void tile_attention_backward(const Head<BFloat16>& head,
                             const AttentionBackward<BFloat16>& arguments, float* scratch,
                             TileProduct product) {
  HANJI_DISPATCHED(tile_backward)(head, arguments, scratch, product);
}

}  // namespace hanji::compute::internal
#endif
