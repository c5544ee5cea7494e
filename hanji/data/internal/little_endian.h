#pragma once

#include <bit>
#include <cstddef>
#include <cstring>
#include <span>

namespace hanji::data::internal {

static_assert(std::endian::native == std::endian::little, "token files are little-endian");

/// The value at byte `offset`, which need not be aligned. The caller has checked the length.
template <class T>
T load(std::span<const std::byte> bytes, size_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof(T));
  return value;
}

}  // namespace hanji::data::internal
