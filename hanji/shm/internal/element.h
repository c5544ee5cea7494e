#pragma once

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

template <class T>
inline constexpr bool kIsHalf = std::is_same_v<T, BFloat16> || std::is_same_v<T, Float16>;

/// The type that elements of T are combined in.
template <class T>
using Wide = std::conditional_t<kIsHalf<T>, float, T>;

inline float widen(BFloat16 x) { return std::bit_cast<float>(uint32_t{x.bits} << 16); }

inline float widen(Float16 x) {
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

template <class T>
T widen(T x) {
  return x;
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

template <class T>
T narrow(Wide<T> x) {
  if constexpr (std::is_same_v<T, BFloat16>) {
    return narrow_to_bfloat16(x);
  } else if constexpr (std::is_same_v<T, Float16>) {
    return narrow_to_float16(x);
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
    case DType::kUInt8: return f(uint8_t{});
  }
}

}  // namespace hanji::shm::internal
