#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace hanji::base {

/// Element types that collectives and files speak.
enum class DType : uint8_t {
  kFloat64,
  kFloat32,
  kBFloat16,
  kFloat16,
  kInt32,
  kInt64,
  kUInt8,
  kInt8,
  kBool,          ///< A byte, 0 or 1.
  kFloat8E4M3FN,  ///< 4 bits of exponent, no infinity; the largest magnitude is 448.
  kFloat8E5M2,    ///< 5 bits of exponent, as the upper byte of a float16.
};

inline constexpr int kNumDTypes = 11;

/// Bytes of one element.
size_t size_of(DType dtype);

/// "float64", "float32", "bfloat16", "float16", "int32", "int64", "uint8",
/// "int8", "bool", "float8_e4m3fn", "float8_e5m2".
std::string_view name_of(DType dtype);

/// True for the floating types, whose sums depend on their order.
bool is_floating(DType dtype);

}  // namespace hanji::base

namespace hanji {
using base::DType;
}
