#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "hanji/base/status.h"

namespace hanji::data::internal {

struct PngSize {
  uint16_t width = 0;
  uint16_t height = 0;

  uint64_t rgb_bytes() const { return uint64_t{3} * width * height; }
};

/// Whether the bytes begin as a PNG does, of whatever kind.
bool is_png(std::span<const std::byte> stream);

/// Reads the header of a PNG, its first 33 bytes.
///
/// Errors  kCorrupt for other bytes; kUnsupported for samples of 16 bits, sizes above 65535 and images of
///         more than 1 GiB of RGB.
Result<PngSize> parse_png_size(std::span<const std::byte> stream);

/// Decodes a PNG to RGB rows by libpng: grays and palettes become colours, alpha is dropped.
/// Errors  those of parse_png_size(); kCorrupt with libpng's words.
Result<std::vector<std::byte>> decode_png(std::span<const std::byte> stream);

}  // namespace hanji::data::internal
