#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "hanji/base/status.h"

namespace hanji::data::internal {

/// Encodes RGB rows as a baseline JPEG with 4:2:0 chroma by libjpeg-turbo.
/// Result  the same bytes for the same pixels and quality.
/// Errors  kInternal with libjpeg-turbo's words.
Result<std::string> encode_jpeg_image(std::span<const uint8_t> rgb, uint32_t width, uint32_t height,
                                      int quality);

}  // namespace hanji::data::internal
