#pragma once

#include <fmt/format.h>

#include <string>

namespace hanji::data::internal {

/// A .npy file of version 1 as numpy writes it, for tests.
inline std::string npy_file(const std::string& dtype, const std::string& shape,
                            const std::string& elements, const std::string& fortran = "False") {
  std::string header =
      fmt::format("{{'descr': '{}', 'fortran_order': {}, 'shape': {}, }}", dtype, fortran, shape);
  // The elements begin at a multiple of 64.
  header.resize((10 + header.size() + 1 + 63) / 64 * 64 - 10 - 1, ' ');
  header += '\n';
  const char length[] = {static_cast<char>(header.size() & 255),
                         static_cast<char>(header.size() >> 8)};
  return std::string("\x93NUMPY\x01\x00", 8) + std::string(length, 2) + header + elements;
}

}  // namespace hanji::data::internal
