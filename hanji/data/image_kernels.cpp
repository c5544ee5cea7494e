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
