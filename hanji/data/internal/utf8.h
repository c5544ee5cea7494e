#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "hanji/base/text.h"

namespace hanji::data::internal {

inline constexpr char32_t kInvalid = 0xFFFFFFFF;

/// Decodes the code point at `offset` < text.size() and moves `offset` behind it.
/// Result  kInvalid, with `offset` unmoved, for bytes that are not well-formed UTF-8.
inline char32_t next_code_point(std::string_view text, size_t& offset) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[offset + i]); };
  if (byte(0) < 0x80) return static_cast<unsigned char>(text[offset++]);
  const size_t length = base::utf8_length(text.substr(offset));
  if (length == 0) return kInvalid;
  char32_t value = byte(0) & (0x7F >> length);
  for (size_t i = 1; i < length; ++i) value = value << 6 | (byte(i) & 0x3F);
  offset += length;
  return value;
}

/// Appends the UTF-8 form of a valid code point.
inline void append_code_point(std::string& out, char32_t value) {
  const auto put = [&out](char32_t byte) { out += static_cast<char>(byte); };
  if (value < 0x80) return put(value);
  if (value < 0x800) {
    put(0xC0 | value >> 6);
  } else {
    if (value < 0x10000) {
      put(0xE0 | value >> 12);
    } else {
      put(0xF0 | value >> 18);
      put(0x80 | (value >> 12 & 0x3F));
    }
    put(0x80 | (value >> 6 & 0x3F));
  }
  put(0x80 | (value & 0x3F));
}

}  // namespace hanji::data::internal
