#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace hanji::base {

/// Element types that collectives and files speak.
enum class DType : uint8_t { kFloat64, kFloat32, kBFloat16, kFloat16, kInt32, kInt64, kUInt8 };

inline constexpr int kNumDTypes = 7;

/// Bytes of one element.
size_t size_of(DType dtype);

/// "float64", "float32", "bfloat16", "float16", "int32", "int64", "uint8".
std::string_view name_of(DType dtype);

/// True for the four floating types, whose sums depend on their order.
bool is_floating(DType dtype);

}  // namespace hanji::base

namespace hanji {
using base::DType;
}
