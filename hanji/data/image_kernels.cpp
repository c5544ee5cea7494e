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

void resize_down(const LineFilter& filter, int64_t i, const uint8_t* rows, int64_t row_bytes,
                 uint8_t* pixels) {
  for (int64_t x = 0; x < row_bytes; ++x) {
    int32_t sum = kHalf;
    for (int64_t k = 0; k < filter.taps; ++k) {
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

void resize_across(const LineFilter& filter, const uint8_t* rgb, Mirror mirror, uint8_t* pixels) {
  const hn::FixedTag<uint8_t, 16> d8;
  const hn::FixedTag<int16_t, 8> d16;
  const hn::FixedTag<int32_t, 4> d32;
  // Pairs of neighbours by colour, each with a zero byte: (r0 r1) (g0 g1) (b0 b1) (0 0).
  constexpr uint8_t kZero = 128;
  alignas(16) static constexpr uint8_t kPairs[2][16] = {
      {0, kZero, 3, kZero, 1, kZero, 4, kZero, 2, kZero, 5, kZero, kZero, kZero, kZero, kZero},
      {6, kZero, 9, kZero, 7, kZero, 10, kZero, 8, kZero, 11, kZero, kZero, kZero, kZero, kZero}};
  const auto first_pair = hn::Load(d8, kPairs[0]), second_pair = hn::Load(d8, kPairs[1]);
  const auto outputs = static_cast<int64_t>(filter.first.size());
  const int64_t stride = mirror == Mirror::kYes ? -kPixelBytes : kPixelBytes;
  uint8_t* out = mirror == Mirror::kYes ? pixels + kPixelBytes * (outputs - 1) : pixels;
  for (int64_t i = 0; i < outputs; ++i, out += stride) {
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
    hn::StoreU(hn::DemoteTo(pixel, sums), pixel, out);
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
    for (int64_t k = 0; k < filter.taps; k += 2) {
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

void scale_row(const uint8_t* pixels, int64_t row_bytes, const std::array<float, 3>& scale,
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
      hn::StoreU(hn::Add(scaled, hn::Set(df, offset[c])), df, planes[c] + x);
    };
    put(all, 0);
    put(hn::ShiftRight<8>(all), 1);
    put(hn::ShiftRight<16>(all), 2);
  }
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
#include "hanji/base/simd.h"

namespace hanji::data::internal {
namespace {

/// Begins with the instructions that HANJI_SIMD allows; they change the speed, not the bytes.
void begin_simd() {
  static const base::Simd begun = base::usable_simd().or_throw();
  (void)begun;
}

}  // namespace

void LineFilter::make(int64_t line, int64_t outputs) {
  inputs = line;
  const double step = static_cast<double>(inputs) / static_cast<double>(outputs);
  const double reach = std::max(step, 1.0);
  // So many centres of pixels at most lie within the triangle.
  const int64_t used = std::min(inputs, static_cast<int64_t>(std::ceil(2 * reach)));
  taps = (used + kTapsAtOnce - 1) / kTapsAtOnce * kTapsAtOnce;
  first.resize(outputs);
  weights.assign(outputs * taps, 0);
  std::vector<double> exact(used);
  for (int64_t i = 0; i < outputs; ++i) {
    const double center = (static_cast<double>(i) + 0.5) * step;
    const auto begin = static_cast<int64_t>(std::max(0.0, center - reach + 0.5));
    first[i] = std::min(begin, inputs - used);
    double total = 0;
    for (int64_t k = 0; k < used; ++k) {
      const double at = static_cast<double>(first[i] + k) + 0.5 - center;
      exact[k] = std::max(0.0, 1 - std::abs(at) / reach);
      total += exact[k];
    }
    int16_t* own = weights.data() + i * taps;
    int rest = kWeightOne;
    for (int64_t k = 0; k < used; ++k) {
      own[k] = static_cast<int16_t>(std::lround(exact[k] / total * kWeightOne));
      rest -= own[k];
    }
    // The sum is exact, so that an even colour stays what it is.
    *std::max_element(own, own + used) += static_cast<int16_t>(rest);
  }
}

HWY_EXPORT(resize_across);
HWY_EXPORT(resize_down);
HWY_EXPORT(scale_row);
HWY_EXPORT(brighten_row);
HWY_EXPORT(tint_row);
HWY_EXPORT(mix_rows);

int64_t brighten_row(int32_t brightness, int64_t num_pixels, uint8_t* pixels) {
  begin_simd();
  return HWY_DYNAMIC_DISPATCH(brighten_row)(brightness, num_pixels, pixels);
}

void tint_row(const ColourFactors& factors, int32_t mean_gray, int64_t num_pixels,
              uint8_t* pixels) {
  begin_simd();
  HWY_DYNAMIC_DISPATCH(tint_row)(factors, mean_gray, num_pixels, pixels);
}

void mix_rows(float of_a, float of_b, int64_t count, float* a, float* b) {
  begin_simd();
  HWY_DYNAMIC_DISPATCH(mix_rows)(of_a, of_b, count, a, b);
}

void resize_across(const LineFilter& filter, const uint8_t* rgb, Mirror mirror, uint8_t* pixels) {
  begin_simd();
  HWY_DYNAMIC_DISPATCH(resize_across)(filter, rgb, mirror, pixels);
}

void resize_down(const LineFilter& filter, int64_t i, const uint8_t* rows, int64_t row_bytes,
                 uint8_t* pixels) {
  begin_simd();
  HWY_DYNAMIC_DISPATCH(resize_down)(filter, i, rows, row_bytes, pixels);
}

void scale_row(const uint8_t* pixels, int64_t row_bytes, const std::array<float, 3>& scale,
               const std::array<float, 3>& offset, const std::array<float*, 3>& planes) {
  begin_simd();
  HWY_DYNAMIC_DISPATCH(scale_row)(pixels, row_bytes, scale, offset, planes);
}

}  // namespace hanji::data::internal
#endif
