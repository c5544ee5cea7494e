#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "hanji/base/status.h"
#include "hanji/data/internal/image_kernels.h"
#include "hanji/data/internal/image_view.h"
#include "hanji/data/internal/jpeg_reader.h"

namespace hanji::data::internal {

/// How the levels 0 to 255 of red, green, blue become numbers: level * scale + offset.
struct ColourScale {
  std::array<float, 3> scale;
  std::array<float, 3> offset;

  explicit ColourScale(const plan::ImageStages& stages);
};

/// An image as it lies in a file.
struct StoredImage {
  ImageSize size;
  bool is_jpeg = false;
  std::span<const std::byte> bytes;  ///< A JPEG stream, or rows of RGB.
};

/// Makes a sample of an image in one pass over its pixels: rows of the crop are decoded, resized
/// across and mirrored as they come, then down, scaled and written as planes. Colours that change, for
/// which the whole sample is to be seen, take one more pass over the resized bytes.
///
/// Result  sums are of integers: the same bytes on every processor, at most one level from Pillow's
///         resize(box = crop, BILINEAR) of the decoded image.
/// Cost    crop.height * size * 4 bytes of memory, which is used again.
/// Thread  one at a time.
class ImageRenderer {
 public:
  /// Writes [3, size, size], unless the view ends before. Errors: those of JpegReader; kCorrupt for raw bytes of another size.
  Status render(const StoredImage& image, const ImageView& view, const ColourScale& colours,
                int64_t size, float* out);

 private:
  Status resize_rows(const StoredImage& image, const ImageView& view, int64_t size);
  /// Reads a byte of each cache line, one after the other.
  void touch(std::span<const std::byte> bytes);
  /// A row of a raw image, with the bytes behind it that resize_across() may read.
  const uint8_t* raw_row(const StoredImage& image, PixelBox crop, int64_t y);
  /// Row y of the resized sample, mirrored as the view says.
  void resize_down_to(const ImageView& view, int64_t y, int64_t size, uint8_t* row);
  /// The resized rows with their colours changed, in tile_.
  void make_tile(const ImageView& view, int64_t size);
  /// The same bytes as make_tile() or write_planes() make, and nothing of them is kept.
  void resize_only(const ImageView& view, int64_t size);
  void write_planes(const ImageView& view, const ColourScale& colours, int64_t size, float* out);

  JpegReader jpeg_;
  LineFilter across_;
  LineFilter down_;
  std::vector<uint8_t> rows_;  ///< Resized across.
  std::vector<uint8_t> last_row_;
  std::vector<uint8_t> pixels_;
  std::vector<uint8_t> tile_;
  std::vector<float> scaled_;
  uint64_t touched_ = 0;
};

}  // namespace hanji::data::internal
