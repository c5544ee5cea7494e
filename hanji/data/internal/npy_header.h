#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "hanji/base/status.h"

namespace hanji::data::internal {

/// What the header of a .npy file says of the elements behind it.
struct NpyHeader {
  std::string dtype = {};  ///< "<f4", "|u1"
  std::vector<uint64_t> shape = {};
  uint64_t begin = 0;       ///< Of the first element.
  uint64_t item_bytes = 0;  ///< Of one element.
};

/// Reads the header of a whole .npy file.
///
/// Errors  kCorrupt with the byte, also if the bytes behind the header are not those of the shape;
///         kUnsupported for Fortran order, and for element types other than bool, integers and floats.
/// Source  NEP 1; numpy/lib/format.py.
Result<NpyHeader> parse_npy(std::span<const std::byte> file);

}  // namespace hanji::data::internal
