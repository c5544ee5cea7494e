#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "hanji/base/status.h"

namespace hanji::data::internal {

struct JpegSize {
  uint16_t width = 0;
  uint16_t height = 0;
};

/// Finds the size in a JPEG stream's frame header; decodes nothing.
///
/// Errors  kCorrupt with the byte, and with the name of the format if the stream is of another known
///         one; kUnsupported for lossless and hierarchical coding, samples of other than 8 bits, and
///         other than 1, 3 or 4 (CMYK, YCCK) components.
/// Source  ITU-T T.81, B.1 and B.2.2.
Result<JpegSize> parse_jpeg_size(std::span<const std::byte> stream);

}  // namespace hanji::data::internal
