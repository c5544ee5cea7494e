#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <string_view>

namespace hanji::fuzz {

inline std::span<const std::byte> bytes_of(const uint8_t* data, size_t size) {
  return std::as_bytes(std::span(data, size));
}

inline std::string_view text_of(const uint8_t* data, size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

/// Reads the byte, so that the address sanitizer sees where it lies.
inline void touch(std::byte byte) { [[maybe_unused]] volatile std::byte seen = byte; }

/// What must hold for every input; libFuzzer keeps the input that breaks it.
inline void require(bool holds, const char* promise) {
  if (holds) return;
  std::fprintf(stderr, "broken promise: %s\n", promise);
  std::abort();
}

}  // namespace hanji::fuzz
