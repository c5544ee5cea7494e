#pragma once

#include <cstdint>
#include <functional>

#include "hanji/data/internal/image_kernels.h"
#include "hanji/data/internal/jpeg_reader.h"
#include "hanji/plan/image_stages.h"

namespace hanji::data::internal {

/// How far a sample is made; only what is written is one, the others are for timings.
enum class MadeUntil : uint8_t { kRead, kDecoded, kResized, kWritten };

/// Which pixels of an image become which of a square sample. Pixel (x, y) of the sample is that of
/// the resized crop at (x - shift_x, y - shift_y), mirrored if it is flipped; outside of it, and in
/// the hole, the mean colour.
struct ImageView {
  PixelBox crop;
  bool is_flipped = false;             ///< Left and right.
  bool is_vertically_flipped = false;  ///< Up and down.
  ColourFactors colour = {};           ///< Before what moves and fills.
  int64_t shift_x = 0;
  int64_t shift_y = 0;
  PixelBox hole = {};  ///< Width 0: none.
  /// Changes the rows of four bytes a pixel, after `colour`, before what moves and fills.
  std::function<void(uint8_t* pixels, int64_t row_bytes)> change = {};
  MadeUntil until = MadeUntil::kWritten;
};

/// What the model sees of an image in one epoch; `key` decides all that is random.
ImageView draw_view(const plan::ImageStages& stages, ImageSize image, int64_t size, uint64_t key);

/// What validation sees: the central square, with the ratio of center_crop if it is a stage.
ImageView central_view(const plan::ImageStages& stages, ImageSize image);

}  // namespace hanji::data::internal
