#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "hanji/data/internal/whole_image.h"

namespace hanji::data::internal {

/// A white picture to draw images and small black text on.
class Canvas {
 public:
  static constexpr int64_t kGlyphWidth = 6;  ///< Pixels, with the space behind it.
  static constexpr int64_t kGlyphHeight = 8;

  Canvas(int64_t width, int64_t height);

  /// What lies outside is left out.
  void draw(const RgbImage& image, int64_t x, int64_t y);
  /// Other characters than printable ASCII are question marks; what is wider than `width` is cut.
  void write(std::string_view text, int64_t x, int64_t y, int64_t width);

  Result<std::string> png() const;

 private:
  RgbImage picture_;
};

}  // namespace hanji::data::internal
