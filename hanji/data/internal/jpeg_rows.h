#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "hanji/base/status.h"

// A JPEG whose rows of blocks can be found: a restart marker is between any two of them, and its first
// segment, APP9, which decoders skip, says where each begins:
//   FF E9, u16 bytes of the segment from here on (big-endian, as all of a JPEG's), "hanji-rows", 0,
//   u8 version = 1, then of each row u32 (little-endian) the byte behind the header of the scan
namespace hanji::data::internal {

/// Where a JPEG's rows of blocks are.
struct JpegRows {
  int64_t height = 0;      ///< Pixels of the image.
  int64_t row_height = 0;  ///< Pixels of a row, 8 or a multiple; the last may have fewer.
  size_t height_at = 0;    ///< The byte of the image's height in its frame header.
  size_t scan_begin = 0;   ///< Behind the header of the only scan.
  std::span<const std::byte> begins;  ///< u32 of each row.

  int64_t count() const { return static_cast<int64_t>(begins.size() / sizeof(uint32_t)); }
  /// The first byte of row `i` < count() in the stream.
  size_t begin(int64_t i) const;
};

/// The index of a stream that has one, checked against the stream: its bounds, and that restart markers
/// are in front of the rows. Nothing for other streams.
/// Cost    some 100 ns; at once for streams without the segment.
std::optional<JpegRows> find_jpeg_rows(std::span<const std::byte> stream);

/// Writes the JPEG of rows [first, end) of `stream` to `part`, whose memory is used again.
void cut_jpeg_rows(std::span<const std::byte> stream, const JpegRows& rows, int64_t first,
                   int64_t end, std::vector<std::byte>& part);

/// The same image with an index of its rows, and Huffman codes made for it: coefficients, and so pixels,
/// stay. Application segments and comments are kept.
///
/// Result  a baseline JPEG; the stream's own bytes if it is not gray or of three components, is too large
///         for an index, or has more than 1 GiB of coefficients.
/// Errors  kCorrupt with libjpeg-turbo's words.
Result<std::string> add_jpeg_rows(std::span<const std::byte> stream);

}  // namespace hanji::data::internal
