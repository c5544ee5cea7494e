#include "hanji/comm/dtype.h"

#include <optional>
#include <string>

#include "hanji/base/status.h"

namespace hanji::comm {

namespace {

std::optional<DType> spoken(c10::ScalarType type) {
  switch (type) {
    case c10::ScalarType::Double: return DType::kFloat64;
    case c10::ScalarType::Float: return DType::kFloat32;
    case c10::ScalarType::BFloat16: return DType::kBFloat16;
    case c10::ScalarType::Half: return DType::kFloat16;
    case c10::ScalarType::Int: return DType::kInt32;
    case c10::ScalarType::Long: return DType::kInt64;
    case c10::ScalarType::Byte: return DType::kUInt8;
    case c10::ScalarType::Char: return DType::kInt8;
    case c10::ScalarType::Bool: return DType::kBool;
    case c10::ScalarType::Float8_e4m3fn: return DType::kFloat8E4M3FN;
    case c10::ScalarType::Float8_e5m2: return DType::kFloat8E5M2;
    default: return std::nullopt;
  }
}

}  // namespace

DType to_dtype(c10::ScalarType type) {
  if (const auto dtype = spoken(type)) return *dtype;
  throw Error(
      base::unsupported(std::string("dtype ") + c10::toString(type) +
                        " is not supported; convert the tensor first, for example to float32"));
}

Moved moved_as(c10::ScalarType type) {
  if (const auto dtype = spoken(type)) return {*dtype, 1};
  return {DType::kUInt8, static_cast<int64_t>(c10::elementSize(type))};
}

c10::ScalarType to_scalar_type(DType dtype) {
  switch (dtype) {
    case DType::kFloat64: return c10::ScalarType::Double;
    case DType::kFloat32: return c10::ScalarType::Float;
    case DType::kBFloat16: return c10::ScalarType::BFloat16;
    case DType::kFloat16: return c10::ScalarType::Half;
    case DType::kInt32: return c10::ScalarType::Int;
    case DType::kInt64: return c10::ScalarType::Long;
    case DType::kUInt8: return c10::ScalarType::Byte;
    case DType::kInt8: return c10::ScalarType::Char;
    case DType::kBool: return c10::ScalarType::Bool;
    case DType::kFloat8E4M3FN: return c10::ScalarType::Float8_e4m3fn;
    case DType::kFloat8E5M2: return c10::ScalarType::Float8_e5m2;
  }
  throw Error(base::internal("unknown DType"));
}

}  // namespace hanji::comm
