#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

#include "hanji/data/beton_file.h"

namespace hanji::data::internal {

/// An image as a file of images has it, as a value of a sample: a JPEG keeps its bytes, a PNG becomes rows
/// of RGB. Which of them it is, its first bytes say, as names are often wrong.
///
/// Result  `bytes` are the stream of a JPEG. Those of a PNG are appended to `rows` and not in the value,
///         as they move when more is appended.
/// Errors  those of parse_jpeg_size() and decode_png().
Result<BetonValue> store_image(std::span<const std::byte> stream, std::vector<std::byte>& rows);

/// Bytes that store_image() makes of it; 0 if it cannot be read.
uint64_t stored_bytes(std::span<const std::byte> stream);

/// As store_image(), of a file, all of whose bytes are appended to `out`.
/// Errors  also those of the file, and kUnsupported for more than `max_bytes`.
Result<BetonValue> store_image_file(const std::filesystem::path& path, uint64_t max_bytes,
                                    std::vector<std::byte>& out);

/// Bytes that store_image_file() makes of it; 0 if it cannot be read. A PNG that is named as a JPEG counts as
/// one.
/// Cost    such a file is not opened.
uint64_t stored_bytes_of_file(const std::filesystem::path& path);

}  // namespace hanji::data::internal
