#include "hanji/data/internal/whole_image.h"

#include <algorithm>

namespace hanji::data::internal {

ImageSize fit_within(ImageSize size, int64_t side) {
  const int64_t longer = std::max(size.width, size.height);
  if (longer <= side) return size;
  return {std::max<int64_t>(1, size.width * side / longer),
          std::max<int64_t>(1, size.height * side / longer)};
}

Status WholeImages::read(const BetonValue& image, RgbImage& out) {
  out.width = image.width;
  out.height = image.height;
  const auto row_bytes = static_cast<size_t>(3 * out.width);
  if (image.mode == BetonImageMode::kRaw) {
    const auto* bytes = reinterpret_cast<const uint8_t*>(image.bytes.data());
    out.rgb.assign(bytes, bytes + image.bytes.size());
    return {};
  }
  const ImageSize size{out.width, out.height};
  HANJI_RETURN_IF_ERROR(jpeg_.begin(image.bytes, size, {0, 0, out.width, out.height}));
  out.rgb.clear();
  for (int64_t y = 0; y < out.height; ++y) {
    HANJI_ASSIGN_OR_RETURN(const uint8_t* row, jpeg_.next_row());
    out.rgb.insert(out.rgb.end(), row, row + row_bytes);
  }
  return {};
}

void WholeImages::resize(const RgbImage& image, ImageSize size, RgbImage& out) {
  across_.make(image.width, size.width);
  down_.make(image.height, size.height);
  const int64_t padded = padded_row(size.width);
  line_.resize(static_cast<size_t>(3 * image.width + bytes_behind_row(across_)));
  rows_.resize(static_cast<size_t>(image.height * padded));
  for (int64_t y = 0; y < image.height; ++y) {
    std::copy_n(image.rgb.data() + 3 * image.width * y, 3 * image.width, line_.data());
    resize_across(across_, line_.data(), Mirror::kNo, rows_.data() + y * padded);
  }
  out.width = size.width;
  out.height = size.height;
  out.rgb.resize(static_cast<size_t>(3 * size.width * size.height));
  pixels_.resize(static_cast<size_t>(padded));
  for (int64_t y = 0; y < size.height; ++y) {
    resize_down(down_, y, rows_.data(), padded, pixels_.data());
    uint8_t* row = out.rgb.data() + 3 * size.width * y;
    for (int64_t x = 0; x < size.width; ++x)
      std::copy_n(pixels_.data() + kPixelBytes * x, 3, row + 3 * x);
  }
}

}  // namespace hanji::data::internal
