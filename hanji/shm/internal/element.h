#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <type_traits>

#include "hanji/base/dtype.h"

/// What one element is, and in what type it is combined.
namespace hanji::shm::internal {

struct BFloat16 {
  uint16_t bits;
};
struct Float16 {
  uint16_t bits;
};

struct Float8E4M3FN {
  uint8_t bits;
};
struct Float8E5M2 {
  uint8_t bits;
};

template <class T>
inline constexpr bool kIsFloat8 = std::is_same_v<T, Float8E4M3FN> || std::is_same_v<T, Float8E5M2>;
/// Whether elements of T are combined in a wider type.
template <class T>
inline constexpr bool kIsNarrow =
    std::is_same_v<T, BFloat16> || std::is_same_v<T, Float16> || kIsFloat8<T>;

/// The type that elements of T are combined in.
template <class T>
using Wide = std::conditional_t<kIsNarrow<T>, float, T>;

inline float widen(BFloat16 x) { return std::bit_cast<float>(uint32_t{x.bits} << 16); }

constexpr float widen(Float16 x) {
  const uint32_t sign = uint32_t{x.bits} >> 15 << 31;
  const uint32_t exponent = x.bits >> 10 & 0x1f;
  const uint32_t fraction = x.bits & 0x3ff;
  if (exponent == 0x1f) {  // A signalling NaN comes out quiet, as from the processor.
    const uint32_t quiet = fraction != 0 ? 1u << 22 : 0;
    return std::bit_cast<float>(sign | 0x7f800000 | quiet | fraction << 13);
  }
  if (exponent != 0) return std::bit_cast<float>(sign | (exponent + 112) << 23 | fraction << 13);
  const float magnitude = static_cast<float>(fraction) * 0x1p-24f;
  return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(magnitude));
}

constexpr float widen_exactly(Float8E5M2 x) {
  return widen(Float16{static_cast<uint16_t>(x.bits << 8)});
}

constexpr float widen_exactly(Float8E4M3FN x) {
  const uint32_t sign = uint32_t{x.bits} >> 7 << 31;
  const uint32_t exponent = x.bits >> 3 & 0xf;
  const uint32_t fraction = x.bits & 7;
  uint32_t magnitude = (exponent + 120) << 23 | fraction << 20;
  if (exponent == 0) magnitude = std::bit_cast<uint32_t>(static_cast<float>(fraction) * 0x1p-9f);
  if (exponent == 0xf && fraction == 7) magnitude = 0x7fc00000;
  return std::bit_cast<float>(sign | magnitude);
}

template <class T>
constexpr std::array<float, 256> make_wide_values() {
  std::array<float, 256> values{};
  for (uint32_t bits = 0; bits < 256; ++bits) {
    values[bits] = widen_exactly(T{static_cast<uint8_t>(bits)});
  }
  return values;
}

template <class T>
inline constexpr std::array<float, 256> kWideValues = make_wide_values<T>();

template <class T>
Wide<T> widen(T x) {
  if constexpr (kIsFloat8<T>) {
    return kWideValues<T>[x.bits];
  } else {
    return x;
  }
}

inline BFloat16 narrow_to_bfloat16(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  if (x != x) return {static_cast<uint16_t>(bits >> 16 | 0x40)};
  return {static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16)};
}

inline Float16 narrow_to_float16(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  const uint32_t sign = bits >> 16 & 0x8000;
  const uint32_t magnitude = bits & 0x7fffffff;
  uint32_t half = 0;
  if (magnitude > 0x7f800000) {
    half = 0x7e00 | (magnitude >> 13 & 0x3ff);
  } else if (magnitude >= 0x47800000) {  // 2^16 and above
    half = 0x7c00;
  } else if (magnitude >= 0x38800000) {  // normal: 2^-14 and above; may round up to infinity
    half = (magnitude - 0x38000000 + 0xfff + (magnitude >> 13 & 1)) >> 13;
  } else if (magnitude >= 0x33000000) {  // subnormal: 2^-25 and above
    const uint32_t shift = 126 - (magnitude >> 23);
    const uint32_t fraction = (magnitude & 0x7fffff) | 0x800000;
    half = fraction >> shift;
    const uint32_t rest = fraction & ((1u << shift) - 1);
    const uint32_t tie = 1u << (shift - 1);
    if (rest > tie || (rest == tie && (half & 1))) ++half;
  }
  return {static_cast<uint16_t>(sign | half)};
}

/// The magnitude of a finite float, rounded to nearest even to a type with `kFraction` bits of
/// fraction and exponents biased by `kBias`. May go beyond its largest value.
template <int kFraction, uint32_t kBias>
uint32_t round_magnitude(uint32_t magnitude) {
  constexpr int kDropped = 23 - kFraction;
  constexpr uint32_t kFirstNormal = 128 - kBias;  // exponent of the smallest normal value
  const uint32_t exponent = magnitude >> 23;
  if (exponent >= kFirstNormal) {
    const uint32_t rebased = magnitude - ((kFirstNormal - 1) << 23);
    return (rebased + (1u << (kDropped - 1)) - 1 + (rebased >> kDropped & 1)) >> kDropped;
  }
  const uint32_t shift = kDropped + kFirstNormal - exponent;
  if (shift > 24) return 0;  // below half of the smallest value
  const uint32_t fraction = (magnitude & 0x7fffff) | 0x800000;
  const uint32_t kept = fraction >> shift;
  const uint32_t rest = fraction & ((1u << shift) - 1);
  const uint32_t tie = 1u << (shift - 1);
  return kept + (rest > tie || (rest == tie && (kept & 1)) ? 1 : 0);
}

/// `kTop` is what everything too large becomes.
template <int kFraction, uint32_t kBias, uint32_t kTop>
uint8_t narrow_to_float8(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  const uint32_t magnitude = bits & 0x7fffffff;
  uint32_t rounded = 0x7f;  // NaN
  if (magnitude == 0x7f800000) {
    rounded = kTop;
  } else if (magnitude < 0x7f800000) {
    rounded = std::min(round_magnitude<kFraction, kBias>(magnitude), kTop);
  }
  return static_cast<uint8_t>(bits >> 24 & 0x80) | static_cast<uint8_t>(rounded);
}

template <class T>
T narrow(Wide<T> x) {
  if constexpr (std::is_same_v<T, BFloat16>) {
    return narrow_to_bfloat16(x);
  } else if constexpr (std::is_same_v<T, Float16>) {
    return narrow_to_float16(x);
  } else if constexpr (std::is_same_v<T, Float8E4M3FN>) {
    return {narrow_to_float8<3, 7, 0x7e>(x)};
  } else if constexpr (std::is_same_v<T, Float8E5M2>) {
    return {narrow_to_float8<2, 15, 0x7c>(x)};
  } else {
    return x;
  }
}

/// Calls f(T{}) with the element type of `dtype`.
template <class F>
void visit(DType dtype, F&& f) {
  switch (dtype) {
    case DType::kFloat64: return f(double{});
    case DType::kFloat32: return f(float{});
    case DType::kBFloat16: return f(BFloat16{});
    case DType::kFloat16: return f(Float16{});
    case DType::kInt32: return f(int32_t{});
    case DType::kInt64: return f(int64_t{});
    case DType::kUInt8:
    case DType::kBool: return f(uint8_t{});
    case DType::kInt8: return f(int8_t{});
    case DType::kFloat8E4M3FN: return f(Float8E4M3FN{});
    case DType::kFloat8E5M2: return f(Float8E5M2{});
  }
}

}  // namespace hanji::shm::internal
