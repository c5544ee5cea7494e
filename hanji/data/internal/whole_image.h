#pragma once

#include <cstdint>
#include <vector>

#include "hanji/data/beton_file.h"
#include "hanji/data/internal/image_kernels.h"
#include "hanji/data/internal/jpeg_reader.h"

namespace hanji::data::internal {

struct RgbImage {
  int64_t width = 0;
  int64_t height = 0;
  std::vector<uint8_t> rgb;  ///< Rows without space between them.
};

/// The size of the largest image of the ratio of `size` whose longer side has at most `side` pixels;
/// `size` if it is that small. Fractions are cut off, as FFCV does.
ImageSize fit_within(ImageSize size, int64_t side);

/// Decodes and resizes whole images of a file.
/// Thread  one at a time.
class WholeImages {
 public:
  /// Errors  those of JpegReader.
  Status read(const BetonValue& image, RgbImage& out);
  /// Antialiased: the filter of ImageRenderer.
  void resize(const RgbImage& image, ImageSize size, RgbImage& out);

 private:
  JpegReader jpeg_;
  LineFilter across_;
  LineFilter down_;
  std::vector<uint8_t> line_;
  std::vector<uint8_t> rows_;
  std::vector<uint8_t> pixels_;
};

}  // namespace hanji::data::internal
