#include "hanji/data/internal/png_writer.h"

#include <fmt/format.h>
#include <png.h>

namespace hanji::data::internal {

Result<std::string> encode_png(std::span<const uint8_t> rgb, uint32_t width, uint32_t height) {
  if (rgb.empty() || rgb.size() != size_t{3} * width * height) {
    return base::invalid_argument(
        fmt::format("{} bytes for a PNG of {} x {} pixels", rgb.size(), width, height));
  }
  png_image image = {};
  image.version = PNG_IMAGE_VERSION;
  image.width = width;
  image.height = height;
  image.format = PNG_FORMAT_RGB;
  std::string out;
  png_alloc_size_t bytes = 0;
  const auto write = [&](void* to) {
    return png_image_write_to_memory(&image, to, &bytes, 0, rgb.data(), 0, nullptr) != 0;
  };
  bool is_written = write(nullptr);
  out.resize(bytes);
  is_written = is_written && write(out.data());
  if (!is_written) return base::internal(fmt::format("libpng: {}", image.message));
  out.resize(bytes);
  return out;
}

}  // namespace hanji::data::internal
