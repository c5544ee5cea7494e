#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "hanji/base/status.h"

namespace hanji::data::internal {

/// Encodes RGB rows as PNG by libpng.
/// Errors  kInternal with libpng's words; kInvalidArgument for a size that is not the rows'.
Result<std::string> encode_png(std::span<const uint8_t> rgb, uint32_t width, uint32_t height);

}  // namespace hanji::data::internal
