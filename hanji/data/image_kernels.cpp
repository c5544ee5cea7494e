#include "hanji/data/internal/image_kernels.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "hanji/data/image_kernels.cpp"
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4)
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace hanji::data::internal {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr int32_t kHalf = LineFilter::kWeightOne / 2;

#if HWY_TARGET == HWY_SCALAR

void resize_across(const LineFilter& filter, const uint8_t* rgb, Mirror mirror, uint8_t* pixels) {
  const auto outputs = static_cast<int64_t>(filter.first.size());
  for (int64_t i = 0; i < outputs; ++i) {
    uint8_t* out = pixels + kPixelBytes * (mirror == Mirror::kYes ? outputs - 1 - i : i);
    out[3] = 0;
    for (int64_t c = 0; c < 3; ++c) {
      int32_t sum = kHalf;
      for (int64_t k = 0; k < filter.taps; ++k) {
        sum += filter.weights[i * filter.taps + k] * rgb[3 * (filter.first[i] + k) + c];
      }
      out[c] = static_cast<uint8_t>(sum >> LineFilter::kBits);
    }
  }
}

void copy_across(int64_t count, const uint8_t* rgb, Mirror mirror, uint8_t* pixels) {
  for (int64_t i = 0; i < count; ++i) {
    uint8_t* out = pixels + kPixelBytes * (mirror == Mirror::kYes ? count - 1 - i : i);
    for (int64_t c = 0; c < 3; ++c) out[c] = rgb[3 * i + c];
    out[3] = 0;
  }
}

void resize_down(const LineFilter& filter, int64_t i, const uint8_t* rows, int64_t row_bytes,
                 uint8_t* pixels) {
  for (int64_t x = 0; x < row_bytes; ++x) {
    int32_t sum = kHalf;
    for (int64_t k = 0; k < filter.used; ++k) {
      const int64_t row = std::min(filter.first[i] + k, filter.inputs - 1);
      sum += filter.weights[i * filter.taps + k] * rows[row * row_bytes + x];
    }
    pixels[x] = static_cast<uint8_t>(sum >> LineFilter::kBits);
  }
}

#else

/// Two weights in each lane.
template <class D32>
HWY_INLINE auto pair_of(D32 d32, const int16_t* weights) {
  int32_t pair;
  std::memcpy(&pair, weights, sizeof(pair));
  return hn::BitCast(hn::Repartition<int16_t, D32>(), hn::Set(d32, pair));
}

// Pairs of neighbours by colour, each with a zero byte: (r0 r1) (g0 g1) (b0 b1) (0 0).
constexpr uint8_t kZero = 128;
alignas(16) constexpr uint8_t kPairs[2][16] = {
    {0, kZero, 3, kZero, 1, kZero, 4, kZero, 2, kZero, 5, kZero, kZero, kZero, kZero, kZero},
    {6, kZero, 9, kZero, 7, kZero, 10, kZero, 8, kZero, 11, kZero, kZero, kZero, kZero, kZero}};

#if HWY_MAX_BYTES >= 32

/// Writes outputs [0, 4 n) of a filter of four taps, four at a time, and returns 4 n. `kHasAll`: the
/// third and the fourth tap have weights.
template <bool kHasAll>
int64_t resize_fours_across(const LineFilter& filter, const uint8_t* rgb, Mirror mirror,
                            uint8_t* pixels) {
  const hn::FixedTag<uint8_t, 16> block;
  const hn::FixedTag<uint8_t, 32> d8;
  const hn::Repartition<int16_t, decltype(d8)> d16;
  const hn::Repartition<int32_t, decltype(d8)> d32;
  const auto first_pair = hn::LoadDup128(d8, kPairs[0]),
             second_pair = hn::LoadDup128(d8, kPairs[1]);
  const auto outputs = static_cast<int64_t>(filter.first.size());
  const auto bytes_of = [&](int64_t low, int64_t high) HWY_ATTR {
    return hn::Combine(d8, hn::LoadU(block, rgb + 3 * filter.first[high]),
                       hn::LoadU(block, rgb + 3 * filter.first[low]));
  };
  const auto sum_of = [&](auto bytes, auto first_weights, auto last_weights) HWY_ATTR {
    auto even = hn::Set(d32, kHalf), odd = hn::Zero(d32);
    const auto a = hn::BitCast(d16, hn::TableLookupBytesOr0(bytes, first_pair));
    even = hn::ReorderWidenMulAccumulate(d32, a, hn::BitCast(d16, first_weights), even, odd);
    if constexpr (kHasAll) {
      const auto b = hn::BitCast(d16, hn::TableLookupBytesOr0(bytes, second_pair));
      even = hn::ReorderWidenMulAccumulate(d32, b, hn::BitCast(d16, last_weights), even, odd);
    }
    return hn::ShiftRight<LineFilter::kBits>(hn::RearrangeToOddPlusEven(even, odd));
  };
  int64_t out = 0;
  for (; out + 4 <= outputs; out += 4) {
    // Blocks of `even` are outputs 0 and 2 of the four, those of `odd` 1 and 3: packed, they are in order.
    const bool is_mirrored = mirror == Mirror::kYes;
    const int64_t at = is_mirrored ? outputs - 4 - out : out;
    const auto all = hn::LoadU(d32, reinterpret_cast<const int32_t*>(filter.weights.data() +
                                                                     LineFilter::kTapsAtOnce * at));
    auto even = hn::Undefined(d32), odd = even;
    if (is_mirrored) {
      const auto swapped = hn::SwapAdjacentBlocks(all);
      even = sum_of(bytes_of(at + 3, at + 1), hn::Broadcast<2>(swapped), hn::Broadcast<3>(swapped));
      odd = sum_of(bytes_of(at + 2, at), hn::Broadcast<0>(swapped), hn::Broadcast<1>(swapped));
    } else {
      even = sum_of(bytes_of(at, at + 2), hn::Broadcast<0>(all), hn::Broadcast<1>(all));
      odd = sum_of(bytes_of(at + 1, at + 3), hn::Broadcast<2>(all), hn::Broadcast<3>(all));
    }
    hn::StoreU(hn::DemoteTo(block, hn::ReorderDemote2To(d16, even, odd)), block,
               pixels + kPixelBytes * out);
  }
  return out;
}

#endif

// Four pixels with a zero byte each, in order or the other way round.
alignas(16) constexpr uint8_t kFours[2][16] = {
    {0, 1, 2, kZero, 3, 4, 5, kZero, 6, 7, 8, kZero, 9, 10, 11, kZero},
    {9, 10, 11, kZero, 6, 7, 8, kZero, 3, 4, 5, kZero, 0, 1, 2, kZero}};

void copy_across(int64_t count, const uint8_t* rgb, Mirror mirror, uint8_t* pixels) {
  const hn::FixedTag<uint8_t, 16> d8;
  const hn::FixedTag<uint8_t, 4> pixel;
  const bool is_mirrored = mirror == Mirror::kYes;
  const auto order = hn::Load(d8, kFours[is_mirrored ? 1 : 0]);
  const auto first = hn::Load(d8, kFours[0]);
  int64_t i = 0;
  for (; i + 4 <= count; i += 4) {
    const auto four = hn::TableLookupBytesOr0(hn::LoadU(d8, rgb + 3 * i), order);
    hn::StoreU(four, d8, pixels + kPixelBytes * (is_mirrored ? count - 4 - i : i));
  }
  for (; i < count; ++i) {
    const auto one = hn::TableLookupBytesOr0(hn::LoadU(d8, rgb + 3 * i), first);
    hn::StoreU(hn::LowerHalf(pixel, hn::LowerHalf(one)), pixel,
               pixels + kPixelBytes * (is_mirrored ? count - 1 - i : i));
  }
}

void resize_across(const LineFilter& filter, const uint8_t* rgb, Mirror mirror, uint8_t* pixels) {
  const hn::FixedTag<uint8_t, 16> d8;
  const hn::FixedTag<int16_t, 8> d16;
  const hn::FixedTag<int32_t, 4> d32;
  const auto first_pair = hn::Load(d8, kPairs[0]), second_pair = hn::Load(d8, kPairs[1]);
  const auto outputs = static_cast<int64_t>(filter.first.size());
  int64_t done = 0;
#if HWY_MAX_BYTES >= 32
  if (filter.taps == LineFilter::kTapsAtOnce) {
    done = filter.used > 2 ? resize_fours_across<true>(filter, rgb, mirror, pixels)
                           : resize_fours_across<false>(filter, rgb, mirror, pixels);
  }
#endif
  for (; done < outputs; ++done) {
    const int64_t i = mirror == Mirror::kYes ? outputs - 1 - done : done;
    const uint8_t* from = rgb + 3 * filter.first[i];
    const int16_t* weights = filter.weights.data() + i * filter.taps;
    auto even = hn::Set(d32, kHalf), odd = hn::Zero(d32);
    for (int64_t k = 0; k < filter.taps; k += LineFilter::kTapsAtOnce) {
      const auto four = hn::LoadU(d8, from + 3 * k);
      const auto a = hn::BitCast(d16, hn::TableLookupBytesOr0(four, first_pair));
      const auto b = hn::BitCast(d16, hn::TableLookupBytesOr0(four, second_pair));
      even = hn::ReorderWidenMulAccumulate(d32, a, pair_of(d32, weights + k), even, odd);
      even = hn::ReorderWidenMulAccumulate(d32, b, pair_of(d32, weights + k + 2), even, odd);
    }
    const auto sums = hn::ShiftRight<LineFilter::kBits>(hn::RearrangeToOddPlusEven(even, odd));
    const hn::FixedTag<uint8_t, 4> pixel;
    hn::StoreU(hn::DemoteTo(pixel, sums), pixel, pixels + kPixelBytes * done);
  }
}

void resize_down(const LineFilter& filter, int64_t i, const uint8_t* rows, int64_t row_bytes,
                 uint8_t* pixels) {
  const hn::ScalableTag<int32_t> d32;
  const hn::Repartition<int16_t, decltype(d32)> d16;
  const hn::Rebind<uint8_t, decltype(d16)> d8;
  const auto step = static_cast<int64_t>(hn::Lanes(d16));
  const int16_t* weights = filter.weights.data() + i * filter.taps;
  const auto row = [&](int64_t k) {
    return rows + std::min(filter.first[i] + k, filter.inputs - 1) * row_bytes;
  };
  for (int64_t x = 0; x < row_bytes; x += step) {
    auto low = hn::Set(d32, kHalf), high = low, low_odd = hn::Zero(d32), high_odd = low_odd;
    for (int64_t k = 0; k < filter.used; k += 2) {
      const auto a = hn::PromoteTo(d16, hn::LoadU(d8, row(k) + x));
      const auto b = hn::PromoteTo(d16, hn::LoadU(d8, row(k + 1) + x));
      const auto pair = pair_of(d32, weights + k);
      low = hn::ReorderWidenMulAccumulate(d32, hn::InterleaveLower(d16, a, b), pair, low, low_odd);
      high =
          hn::ReorderWidenMulAccumulate(d32, hn::InterleaveUpper(d16, a, b), pair, high, high_odd);
    }
    low = hn::ShiftRight<LineFilter::kBits>(hn::RearrangeToOddPlusEven(low, low_odd));
    high = hn::ShiftRight<LineFilter::kBits>(hn::RearrangeToOddPlusEven(high, high_odd));
    // Interleaved and put together within blocks of 16 bytes: in the order of the row again.
    hn::StoreU(hn::DemoteTo(d8, hn::ReorderDemote2To(d16, low, high)), d8, pixels + x);
  }
}

#endif

template <bool kPastCaches>
void scale_pixels(const uint8_t* pixels, int64_t row_bytes, const std::array<float, 3>& scale,
                  const std::array<float, 3>& offset, const std::array<float*, 3>& planes) {
  const hn::ScalableTag<float> df;
  const hn::RebindToSigned<decltype(df)> d32;
  const auto level = hn::Set(d32, 255);
  const auto step = static_cast<int64_t>(hn::Lanes(df));
  for (int64_t x = 0; x < row_bytes / kPixelBytes; x += step) {
    const auto all = hn::LoadU(d32, reinterpret_cast<const int32_t*>(pixels) + x);
    const auto put = [&](auto levels, size_t c) HWY_ATTR {
      // Not fused: the same bits without instructions that multiply and add.
      const auto scaled = hn::Mul(hn::ConvertTo(df, hn::And(levels, level)), hn::Set(df, scale[c]));
      const auto moved = hn::Add(scaled, hn::Set(df, offset[c]));
      if constexpr (kPastCaches) {
        hn::Stream(moved, df, planes[c] + x);
      } else {
        hn::StoreU(moved, df, planes[c] + x);
      }
    };
    put(all, 0);
    put(hn::ShiftRight<8>(all), 1);
    put(hn::ShiftRight<16>(all), 2);
  }
}

void scale_row(const uint8_t* pixels, int64_t row_bytes, const std::array<float, 3>& scale,
               const std::array<float, 3>& offset, const std::array<float*, 3>& planes) {
  scale_pixels<false>(pixels, row_bytes, scale, offset, planes);
}

void scale_row_past_caches(const uint8_t* pixels, int64_t row_bytes,
                           const std::array<float, 3>& scale, const std::array<float, 3>& offset,
                           const std::array<float*, 3>& planes) {
  scale_pixels<true>(pixels, row_bytes, scale, offset, planes);
}

template <class D32>
HWY_INLINE hn::Vec<D32> gray_of(D32 d, hn::Vec<D32> red, hn::Vec<D32> green, hn::Vec<D32> blue) {
  // 0.299, 0.587 and 0.114 of 65536.
  const auto most = hn::Add(hn::Mul(red, hn::Set(d, 19595)), hn::Mul(green, hn::Set(d, 38470)));
  const auto sum = hn::Add(most, hn::Mul(blue, hn::Set(d, 7471)));
  return hn::ShiftRight<16>(hn::Add(sum, hn::Set(d, 1 << 15)));
}

/// (level * factor + other) as a level.
template <class D32>
HWY_INLINE hn::Vec<D32> changed_level(D32 d, hn::Vec<D32> level, int32_t factor,
                                      hn::Vec<D32> other) {
  const auto product = hn::Add(hn::Mul(level, hn::Set(d, factor)), other);
  const auto rounded =
      hn::ShiftRight<ColourFactors::kBits>(hn::Add(product, hn::Set(d, ColourFactors::kOne / 2)));
  return hn::Max(hn::Zero(d), hn::Min(rounded, hn::Set(d, 255)));
}

/// Replaces the pixels of a row by change(red, green, blue), which changes its arguments.
template <class Change>
HWY_INLINE void change_row(int64_t num_pixels, uint8_t* pixels, const Change& change) {
  const hn::ScalableTag<int32_t> d;
  const auto level = hn::Set(d, 255);
  for (int64_t x = 0; x < num_pixels; x += static_cast<int64_t>(hn::Lanes(d))) {
    auto* at = reinterpret_cast<int32_t*>(pixels) + x;
    const auto all = hn::LoadU(d, at);
    auto red = hn::And(all, level), green = hn::And(hn::ShiftRight<8>(all), level);
    auto blue = hn::And(hn::ShiftRight<16>(all), level);
    change(x, red, green, blue);
    hn::StoreU(hn::Or(red, hn::Or(hn::ShiftLeft<8>(green), hn::ShiftLeft<16>(blue))), d, at);
  }
}

int64_t brighten_row(int32_t brightness, int64_t num_pixels, uint8_t* pixels) {
  const hn::ScalableTag<int32_t> d;
  auto sums = hn::Zero(d);
  change_row(num_pixels, pixels, [&](int64_t x, auto& red, auto& green, auto& blue) HWY_ATTR {
    red = changed_level(d, red, brightness, hn::Zero(d));
    green = changed_level(d, green, brightness, hn::Zero(d));
    blue = changed_level(d, blue, brightness, hn::Zero(d));
    const auto is_pixel = hn::FirstN(d, static_cast<size_t>(num_pixels - x));
    sums = hn::Add(sums, hn::IfThenElseZero(is_pixel, gray_of(d, red, green, blue)));
  });
  return hn::GetLane(hn::SumOfLanes(d, sums));
}

/// The level of a channel whose hue is at `first` sextants, of a pixel whose largest level, chroma and
/// angle these are. Source: "HSL and HSV", its formula without branches.
template <class DF>
HWY_INLINE auto level_of_hue(DF df, float first, hn::Vec<DF> largest, hn::Vec<DF> chroma,
                             hn::Vec<DF> angle) {
  const hn::RebindToSigned<DF> d32;
  const auto six = hn::Set(df, 6.0F), zero = hn::Zero(df);
  auto k = hn::Add(angle, hn::Set(df, first));
  k = hn::Sub(k, hn::And(hn::VecFromMask(df, hn::Ge(k, six)), six));
  const auto ramp = hn::Min(hn::Min(k, hn::Sub(hn::Set(df, 4.0F), k)), hn::Set(df, 1.0F));
  const auto less = hn::Mul(chroma, hn::Max(ramp, zero));
  return hn::ConvertTo(d32, hn::Add(hn::Sub(largest, less), hn::Set(df, 0.5F)));
}

/// Moves the angles of a row's pixels; sums and products are not fused, and levels are whole numbers.
void turn_row(float sextants, int64_t num_pixels, uint8_t* pixels) {
  const hn::ScalableTag<float> df;
  const auto zero = hn::Zero(df), six = hn::Set(df, 6.0F);
  change_row(num_pixels, pixels, [&](int64_t, auto& red, auto& green, auto& blue) HWY_ATTR {
    const auto r = hn::ConvertTo(df, red), g = hn::ConvertTo(df, green);
    const auto b = hn::ConvertTo(df, blue);
    const auto largest = hn::Max(r, hn::Max(g, b));
    const auto chroma = hn::Sub(largest, hn::Min(r, hn::Min(g, b)));
    const auto divisor = hn::Max(chroma, hn::Set(df, 1.0F));
    const auto is_red = hn::Eq(largest, r), is_green = hn::Eq(largest, g);
    const auto of_green = hn::Add(hn::Div(hn::Sub(b, r), divisor), hn::Set(df, 2.0F));
    const auto of_blue = hn::Add(hn::Div(hn::Sub(r, g), divisor), hn::Set(df, 4.0F));
    auto angle = hn::IfThenElse(is_red, hn::Div(hn::Sub(g, b), divisor),
                                hn::IfThenElse(is_green, of_green, of_blue));
    angle = hn::Add(angle, hn::Set(df, sextants));
    angle = hn::Add(angle, hn::And(hn::VecFromMask(df, hn::Lt(angle, zero)), six));
    angle = hn::Sub(angle, hn::And(hn::VecFromMask(df, hn::Ge(angle, six)), six));
    red = level_of_hue(df, 5.0F, largest, chroma, angle);
    green = level_of_hue(df, 3.0F, largest, chroma, angle);
    blue = level_of_hue(df, 1.0F, largest, chroma, angle);
  });
}

void tint_row(const ColourFactors& factors, int32_t mean_gray, int64_t num_pixels,
              uint8_t* pixels) {
  const hn::ScalableTag<int32_t> d;
  const auto mean_part = hn::Set(d, mean_gray * (ColourFactors::kOne - factors.contrast));
  change_row(num_pixels, pixels, [&](int64_t, auto& red, auto& green, auto& blue) HWY_ATTR {
    red = changed_level(d, red, factors.contrast, mean_part);
    green = changed_level(d, green, factors.contrast, mean_part);
    blue = changed_level(d, blue, factors.contrast, mean_part);
    const auto gray_part =
        hn::Mul(gray_of(d, red, green, blue), hn::Set(d, ColourFactors::kOne - factors.saturation));
    red = changed_level(d, red, factors.saturation, gray_part);
    green = changed_level(d, green, factors.saturation, gray_part);
    blue = changed_level(d, blue, factors.saturation, gray_part);
  });
  if (factors.hue_sextants != 0) turn_row(factors.hue_sextants, num_pixels, pixels);
}

void mix_rows(float of_a, float of_b, int64_t count, float* a, float* b) {
  const hn::ScalableTag<float> wide;
  const hn::CappedTag<float, 1> narrow;
  const auto mix = [&](auto d, int64_t i) HWY_ATTR {
    const auto own = hn::LoadU(d, a + i), other = hn::LoadU(d, b + i);
    const auto part_of_a = hn::Mul(hn::Set(d, of_a), own);
    const auto part_of_b = hn::Mul(hn::Set(d, of_b), other);
    hn::StoreU(hn::Add(part_of_a, hn::Mul(hn::Set(d, 1 - of_a), other)), d, a + i);
    hn::StoreU(hn::Add(part_of_b, hn::Mul(hn::Set(d, 1 - of_b), own)), d, b + i);
  };
  int64_t i = 0;
  const auto step = static_cast<int64_t>(hn::Lanes(wide));
  for (; i + step <= count; i += step) mix(wide, i);
  for (; i < count; ++i) mix(narrow, i);
}

}  // namespace HWY_NAMESPACE
}  // namespace hanji::data::internal
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <hwy/cache_control.h>

#include "hanji/base/simd_dispatch.h"

namespace hanji::data::internal {

void LineFilter::make(int64_t line, int64_t outputs) {
  if (inputs == line && std::ssize(first) == outputs) return;
  inputs = line;
  const double step = static_cast<double>(inputs) / static_cast<double>(outputs);
  const double reach = std::max(step, 1.0);
  // So many centres of pixels at most lie within the triangle.
  const int64_t weighted = std::min(inputs, static_cast<int64_t>(std::ceil(2 * reach)));
  taps = (weighted + kTapsAtOnce - 1) / kTapsAtOnce * kTapsAtOnce;
  used = (weighted + 1) / 2 * 2;
  first.resize(outputs);
  weights.assign(outputs * taps, 0);
  std::vector<double> exact(weighted);
  for (int64_t i = 0; i < outputs; ++i) {
    const double center = (static_cast<double>(i) + 0.5) * step;
    const auto begin = static_cast<int64_t>(std::max(0.0, center - reach + 0.5));
    first[i] = std::min(begin, inputs - weighted);
    double total = 0;
    for (int64_t k = 0; k < weighted; ++k) {
      const double at = static_cast<double>(first[i] + k) + 0.5 - center;
      exact[k] = std::max(0.0, 1 - std::abs(at) / reach);
      total += exact[k];
    }
    int16_t* own = weights.data() + i * taps;
    int rest = kWeightOne;
    for (int64_t k = 0; k < weighted; ++k) {
      own[k] = static_cast<int16_t>(std::lround(exact[k] / total * kWeightOne));
      rest -= own[k];
    }
    // The sum is exact, so that an even colour stays what it is.
    *std::max_element(own, own + weighted) += static_cast<int16_t>(rest);
  }
}

void flush_past_caches() { hwy::FlushStream(); }

HWY_EXPORT(copy_across);
HWY_EXPORT(resize_across);
HWY_EXPORT(resize_down);
HWY_EXPORT(scale_row);
HWY_EXPORT(scale_row_past_caches);
HWY_EXPORT(brighten_row);
HWY_EXPORT(tint_row);
HWY_EXPORT(mix_rows);

int64_t brighten_row(int32_t brightness, int64_t num_pixels, uint8_t* pixels) {
  return HANJI_DISPATCHED(brighten_row)(brightness, num_pixels, pixels);
}

void tint_row(const ColourFactors& factors, int32_t mean_gray, int64_t num_pixels,
              uint8_t* pixels) {
  HANJI_DISPATCHED(tint_row)(factors, mean_gray, num_pixels, pixels);
}

void mix_rows(float of_a, float of_b, int64_t count, float* a, float* b) {
  HANJI_DISPATCHED(mix_rows)(of_a, of_b, count, a, b);
}

void resize_across(const LineFilter& filter, const uint8_t* rgb, Mirror mirror, uint8_t* pixels) {
  if (filter.changes_nothing()) {
    HANJI_DISPATCHED(copy_across)(filter.inputs, rgb, mirror, pixels);
    return;
  }
  HANJI_DISPATCHED(resize_across)(filter, rgb, mirror, pixels);
}

void resize_down(const LineFilter& filter, int64_t i, const uint8_t* rows, int64_t row_bytes,
                 uint8_t* pixels) {
  HANJI_DISPATCHED(resize_down)(filter, i, rows, row_bytes, pixels);
}

void scale_row(const uint8_t* pixels, int64_t row_bytes, const std::array<float, 3>& scale,
               const std::array<float, 3>& offset, const std::array<float*, 3>& planes) {
  HANJI_DISPATCHED(scale_row)(pixels, row_bytes, scale, offset, planes);
}

void scale_row_past_caches(const uint8_t* pixels, int64_t row_bytes,
                           const std::array<float, 3>& scale, const std::array<float, 3>& offset,
                           const std::array<float*, 3>& planes) {
  HANJI_DISPATCHED(scale_row_past_caches)(pixels, row_bytes, scale, offset, planes);
}

}  // namespace hanji::data::internal
#endif
