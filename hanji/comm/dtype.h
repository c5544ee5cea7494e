#pragma once

#include <c10/core/ScalarType.h>

#include "hanji/base/dtype.h"

namespace hanji::comm {

/// The element type of a torch tensor in the words of the core.
/// Errors  throws Error(kUnsupported) for a type that no collective speaks.
DType to_dtype(c10::ScalarType type);

/// The inverse of to_dtype(). uint8 maps to Byte.
c10::ScalarType to_scalar_type(DType dtype);

}  // namespace hanji::comm
