// Rows of bf16 in the layouts of tile products; included once per vector target.
#if defined(HANJI_COMPUTE_TILES_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef HANJI_COMPUTE_TILES_INL_H
#undef HANJI_COMPUTE_TILES_INL_H
#else
#define HANJI_COMPUTE_TILES_INL_H
#endif

#include <hwy/cache_control.h>

#include <algorithm>

#include "hanji/compute/internal/attention-inl.h"

HWY_BEFORE_NAMESPACE();
namespace hanji::compute::internal {
namespace HWY_NAMESPACE {

using TileExtent = base::TileAttentionExtent;
constexpr int64_t kQueries = TileExtent::kQueries;

using Floats = hn::ScalableTag<float>;
using Words = hn::ScalableTag<uint32_t>;
using Halves = hn::Rebind<uint16_t, Words>;
using Vector = hn::Vec<Floats>;
using WordVector = hn::Vec<Words>;

constexpr int64_t kLanes = HWY_LANES(float);
constexpr int64_t kVectors = kQueries / kLanes;

/// One number of each of kQueries queries.
struct PerQuery {
  Vector v[kVectors];
};

#if HWY_TARGET == HWY_SCALAR
template <class Write>
HWY_INLINE void transpose_words(const uint32_t* in, int64_t rows, int64_t words,
                                const Write& write) {
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t word = 0; word < words; ++word) {
      write(word, row, hn::Set(Words(), in[row * words + word]));
    }
  }
}
#else
/// Blocks of four words at p, p + 4 strides, p + 8 strides, ...
template <class D>
HWY_INLINE hn::Vec<D> load_blocks(D d, const uint32_t* p, int64_t stride) {
  if constexpr (hn::MaxLanes(d) <= 4) {
    return hn::LoadU(d, p);
  } else {
    const hn::Half<D> half;
    const int64_t rows = static_cast<int64_t>(hn::MaxLanes(half));
    return hn::Combine(d, load_blocks(half, p + rows * stride, stride),
                       load_blocks(half, p, stride));
  }
}

/// Pairs of words of the lower, or upper, half of each block: a's, then b's.
template <bool kUpper>
HWY_INLINE WordVector join(WordVector a, WordVector b) {
  const hn::RepartitionToWide<Words> wide;
  const auto of_a = hn::BitCast(wide, a), of_b = hn::BitCast(wide, b);
  return hn::BitCast(Words(), kUpper ? hn::InterleaveUpper(wide, of_a, of_b)
                                     : hn::InterleaveLower(wide, of_a, of_b));
}

/// write(row, column, vector) of the transposed matrix [words][rows], in whole vectors.
template <class Write>
HWY_INLINE void transpose_words(const uint32_t* in, int64_t rows, int64_t words,
                                const Write& write) {
  const Words d;
  for (int64_t row = 0; row < rows; row += kLanes) {
    for (int64_t word = 0; word < words; word += 4) {
      const uint32_t* const p = in + row * words + word;
      const auto one = load_blocks(d, p, words), two = load_blocks(d, p + words, words);
      const auto three = load_blocks(d, p + 2 * words, words);
      const auto four = load_blocks(d, p + 3 * words, words);
      const auto low = hn::InterleaveLower(d, one, two), high = hn::InterleaveUpper(d, one, two);
      const auto next_low = hn::InterleaveLower(d, three, four);
      const auto next_high = hn::InterleaveUpper(d, three, four);
      write(word, row, join<false>(low, next_low));
      write(word + 1, row, join<true>(low, next_low));
      write(word + 2, row, join<false>(high, next_high));
      write(word + 3, row, join<true>(high, next_high));
    }
  }
}
#endif

HWY_INLINE const uint32_t* as_words(const void* p) { return static_cast<const uint32_t*>(p); }

HWY_INLINE void store_halves(WordVector v, BFloat16* p) {
  const Halves halves;
  hn::StoreU(hn::TruncateTo(halves, v), halves, &p->bits);
}

/// Float32 whose upper half is v in bf16; halves away from zero, which a sum of many does not notice.
HWY_INLINE WordVector rounded(Vector v) {
  const Words words;
  return hn::Add(hn::BitCast(words, v), hn::Set(words, 0x8000));
}

HWY_INLINE WordVector pair(WordVector even, WordVector odd) {
  return hn::Or(hn::ShiftRight<16>(even), hn::And(odd, hn::Set(Words(), 0xFFFF0000U)));
}

/// The upper halves of two vectors.
HWY_INLINE void store_upper_halves(WordVector low, WordVector high, BFloat16* p) {
#if HWY_TARGET == HWY_SCALAR
  store_halves(hn::ShiftRight<16>(low), p);
  store_halves(hn::ShiftRight<16>(high), p + 1);
#else
  const hn::Repartition<uint16_t, Words> d;
  hn::StoreU(hn::ConcatOdd(d, hn::BitCast(d, high), hn::BitCast(d, low)), d, &p->bits);
#endif
}

/// kLanes numbers at a column of a row of so many; zeros behind it.
template <class T>
HWY_INLINE Vector load_padded(const T* row, int64_t column, int64_t columns) {
  const Floats d;
  if (column + kLanes <= columns) return load(d, row + column);
  if (column >= columns) return hn::Zero(d);
  return load_first(d, row + column, static_cast<size_t>(columns - column));
}

/// Rows of tokens lie far apart: what will be read is asked for so many tokens before.
constexpr int64_t kTokensAhead = 16;

HWY_INLINE void fetch(const BFloat16* row, int64_t size) {
  constexpr int64_t kLine = 64 / sizeof(BFloat16);
  for (int64_t i = 0; i < size; i += kLine) hwy::Prefetch(row + i);
}

/// in + bias of the next `rows` tokens of those that are left, with zeros behind them.
HWY_INLINE void round_rows(const Head<BFloat16>& h, const BFloat16* in, int64_t stride,
                           const float* bias, int64_t left, int64_t rows, int64_t size,
                           BFloat16* out) {
  const int64_t count = std::min(left, rows);
  for (int64_t t = 0; t < count; ++t) {
    const BFloat16* const from = in + t * stride;
    BFloat16* const to = out + t * size;
    if (t + kTokensAhead < left) fetch(from + kTokensAhead * stride, h.size);
    if (bias == nullptr) {
      std::copy_n(from, h.size, to);
      std::fill(to + h.size, to + size, BFloat16{0});
    } else {
      const auto sum = [&](int64_t i) HWY_ATTR {
        return rounded(hn::Add(load_padded(from, i, h.size), load_padded(bias, i, h.size)));
      };
      for (int64_t i = 0; i < size; i += 2 * kLanes) {
        store_upper_halves(sum(i), sum(i + kLanes), to + i);
      }
    }
  }
  std::fill(out + count * size, out + rows * size, BFloat16{0});
}

/// Plain rows of kQueries tokens to pairs of their features.
HWY_INLINE void pair_features(const BFloat16* in, int64_t size, uint32_t* out) {
  const Words d;
  transpose_words(as_words(in), kQueries, size / 2,
                  [&](int64_t row, int64_t column, WordVector v)
                      HWY_ATTR { hn::Store(v, d, out + row * kQueries + column); });
}

/// Plain rows of kQueries tokens to pairs of tokens.
HWY_INLINE void pair_tokens(const BFloat16* in, int64_t size, uint32_t* out) {
  const Words d;
  const Halves halves;
  for (int64_t t = 0; t < kQueries; t += 2) {
    const BFloat16* const row = in + t * size;
    for (int64_t i = 0; i < size; i += kLanes) {
      const auto even = hn::PromoteTo(d, hn::LoadU(halves, &row[i].bits));
      const auto odd = hn::PromoteTo(d, hn::LoadU(halves, &row[size + i].bits));
      hn::Store(hn::Or(even, hn::ShiftLeft<16>(odd)), d, out + t / 2 * size + i);
    }
  }
}

/// Plain to transposed.
HWY_INLINE void transpose_tokens(const TileExtent& e, const BFloat16* in, BFloat16* out) {
  for (int64_t first = 0; first < e.rows; first += e.keys) {
    BFloat16* const to = out + first * e.size;
    transpose_words(as_words(in + first * e.size), std::min(e.keys, e.rows - first), e.size / 2,
                    [&](int64_t row, int64_t column, WordVector v) HWY_ATTR {
                      store_halves(v, to + 2 * row * e.keys + column);
                      store_halves(hn::ShiftRight<16>(v), to + (2 * row + 1) * e.keys + column);
                    });
  }
}

/// 2^x of x up to 1, to 2^-23 of itself; never below 2^-126. A NaN stays one.
HWY_INLINE Vector power_of_two(Vector x) {
  const Floats d;
  const Words words;
  const auto to_integer =
      hn::Set(d, 12582912.0F);  // 1.5 * 2^23: the sum's last bits are an integer
  const auto above = hn::Max(hn::Set(d, -126.0F), x);
  const auto sum = hn::Add(above, to_integer);
  const auto rest = hn::Sub(above, hn::Sub(sum, to_integer));
  auto y = hn::Set(d, 1.32647273e-03F);
  y = hn::MulAdd(y, rest, hn::Set(d, 9.67151299e-03F));
  y = hn::MulAdd(y, rest, hn::Set(d, 5.55073358e-02F));
  y = hn::MulAdd(y, rest, hn::Set(d, 2.40222424e-01F));
  y = hn::MulAdd(y, rest, hn::Set(d, 6.93147004e-01F));
  y = hn::MulAdd(y, rest, hn::Set(d, 1.0F));
  const auto exponent = hn::ShiftLeft<23>(hn::BitCast(words, sum));
  return hn::BitCast(d, hn::Add(hn::BitCast(words, y), exponent));
}

}  // namespace HWY_NAMESPACE
}  // namespace hanji::compute::internal
HWY_AFTER_NAMESPACE();

#endif
