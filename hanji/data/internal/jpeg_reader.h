#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "hanji/base/status.h"

namespace hanji::data::internal {

/// Pixels of an image: columns [x, x + width) of rows [y, y + height).
struct PixelBox {
  int64_t x = 0;
  int64_t y = 0;
  int64_t width = 0;
  int64_t height = 0;
};

struct ImageSize {
  int64_t width = 0;
  int64_t height = 0;
};

/// Decodes part of a JPEG stream row by row with libjpeg-turbo: full resolution, accurate integer
/// DCT, smooth upsampling. EXIF orientation and colour profiles are not applied.
///
/// Gray becomes RGB. CMYK and YCCK become RGB by Adobe's convention, in which 255 is no ink, as
/// Pillow, OpenCV and torchvision read them: red is C K / 255.
///
/// Result  the same bytes as of a whole decode. Columns outside the box are decoded up to the next
///         blocks; rows above it are not transformed, and not read where JpegRows finds them; rows
///         below it are not read.
/// Cost    one row of memory; for progressive streams libjpeg-turbo's coefficients.
/// Errors  kCorrupt with libjpeg-turbo's words for what it reports as damage in the part that is
///         read, for another format (by name), and for a size other than `size`; kUnsupported for other codings, other numbers of
///         components than 1, 3 and 4, and for progressive streams of more than 1 GiB of coefficients or 500 scans.
/// Thread  one at a time.
class JpegReader {
 public:
  JpegReader();
  ~JpegReader();
  JpegReader(const JpegReader&) = delete;
  JpegReader& operator=(const JpegReader&) = delete;

  /// `stream` must stay; `box` lies in `size`. `behind`: bytes behind a row that may be read.
  Status begin(std::span<const std::byte> stream, ImageSize size, PixelBox box, int64_t behind = 0);
  /// The next row of the box, RGB; valid until the next call. At most box.height calls.
  Result<const uint8_t*> next_row();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace hanji::data::internal
