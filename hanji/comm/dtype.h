#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>

#include "hanji/base/dtype.h"

namespace hanji::comm {

/// The element type of a torch tensor in the words of the core.
/// Errors  throws Error(kUnsupported) for a type that no collective speaks.
DType to_dtype(c10::ScalarType type);

/// The inverse of to_dtype(). uint8 maps to Byte.
c10::ScalarType to_scalar_type(DType dtype);

/// How a routine that only moves bytes sees elements of `type`: as themselves, or, for a type that
/// to_dtype() refuses (int16, complex), as several uint8.
struct Moved {
  DType dtype = DType::kUInt8;
  int64_t per_element = 1;
};
Moved moved_as(c10::ScalarType type);

}  // namespace hanji::comm
