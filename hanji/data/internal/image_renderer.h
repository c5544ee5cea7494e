#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
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

/// Bytes from a multiple of a cache line on: vectors that cross lines take longer, and where a vector lies
/// would change the speed of a process.
class LineAligned {
 public:
  void resize(size_t bytes) { memory_.resize(bytes + kLine); }
  uint8_t* data() {
    return memory_.data() + (kLine - reinterpret_cast<uintptr_t>(memory_.data()) % kLine) % kLine;
  }

 private:
  static constexpr size_t kLine = 64;
  std::vector<uint8_t> memory_;
};

/// An image as it lies in a file.
struct StoredImage {
  ImageSize size;
  bool is_jpeg = false;
  std::span<const std::byte> bytes;  ///< A JPEG stream, or rows of RGB.
  bool is_near = false;              ///< All bytes were just read: they are in the caches.
};

/// Makes a sample of an image in one pass over its pixels: rows of the crop are decoded, resized
/// across and mirrored as they come, then down, scaled and written as planes. Colours that change, for
/// which the whole sample is to be seen, take one more pass over the resized bytes.
///
/// Result  sums are of integers: the same bytes on every processor, at most one level from Pillow's
///         resize(box = crop, BILINEAR) of the decoded image.
/// Cost    crop.height * size * 4 bytes of memory, which is used again, and some 4 KiB for each of up to kFilters
///         sizes of crops.
/// Thread  one at a time.
class ImageRenderer {
 public:
  /// Writes [3, size, size], unless the view ends before. Errors: those of JpegReader; kCorrupt for raw bytes of another size.
  Status render(const StoredImage& image, const ImageView& view, const ColourScale& colours,
                int64_t size, float* out);

  /// Nanoseconds in which render() waited for bytes of a file since this was asked last.
  int64_t take_waited_ns() { return std::exchange(waited_ns_, 0); }

 private:
  /// Made at the first use, and kept until another of its place is.
  const LineFilter& filter_of(int64_t inputs, int64_t outputs);
  Status resize_rows(const StoredImage& image, const ImageView& view, int64_t size);
  /// Reads a byte of each `stride`, one after the other: what follows finds them in memory.
  void touch(std::span<const std::byte> bytes, size_t stride);
  /// A row of a raw image, with the bytes behind it that resize_across() may read.
  const uint8_t* raw_row(const StoredImage& image, PixelBox crop, int64_t y);
  /// Row y of the resized sample, mirrored as the view says: one of those in `rows_`, or in `memory`.
  const uint8_t* resized_row(const ImageView& view, int64_t y, int64_t size, uint8_t* memory);
  /// The resized rows with their colours changed, in tile_.
  void make_tile(const ImageView& view, int64_t size);
  /// The same bytes as make_tile() or write_planes() make, and nothing of them is kept.
  void resize_only(const ImageView& view, int64_t size);
  void write_planes(const ImageView& view, const ColourScale& colours, int64_t size, float* out);
  /// Makes scaled_ three rows with as many zeros or more on both sides. Result: where their pixels begin.
  std::array<float*, 3> rows_between_zeros(int64_t padded, int64_t zeros);

  JpegReader jpeg_;
  /// Crops of random sizes come again: to make one takes longer than to use it.
  static constexpr size_t kFilters = 256;
  std::vector<LineFilter> filters_{kFilters};
  const LineFilter* across_ = nullptr;  ///< Until down_ is set, which may take its place.
  const LineFilter* down_ = nullptr;
  LineAligned rows_;  ///< Resized across.
  std::vector<uint8_t> last_row_;
  LineAligned pixels_;
  LineAligned tile_;
  std::vector<float> scaled_;
  int64_t zeros_ = 0;  ///< Before and behind each row of scaled_.
  uint64_t touched_ = 0;
  int64_t waited_ns_ = 0;
};

}  // namespace hanji::data::internal
