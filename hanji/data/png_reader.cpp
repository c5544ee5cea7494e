#include "hanji/data/internal/png_reader.h"

#include <fmt/format.h>
#include <png.h>

#include <algorithm>
#include <array>

namespace hanji::data::internal {
namespace {

constexpr std::array<uint8_t, 16> kPngBegin = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n',
                                               0,    0,   0,   13,  'I',  'H',  'D',  'R'};
constexpr size_t kPngMagicBytes = 8;
constexpr size_t kPngHeaderBytes = 33;
constexpr uint32_t kMaxPngSide = 65535;
constexpr uint64_t kMaxPngRgbBytes = uint64_t{1} << 30;
constexpr size_t kRgba = 4;

uint32_t png_number(std::span<const std::byte> bytes, size_t at) {
  uint32_t value = 0;
  for (size_t i = 0; i < 4; ++i) value = value << 8 | static_cast<uint32_t>(bytes[at + i]);
  return value;
}

}  // namespace

bool is_png(std::span<const std::byte> stream) {
  return stream.size() >= kPngMagicBytes &&
         std::ranges::equal(stream.first(kPngMagicBytes),
                            std::span(kPngBegin).first(kPngMagicBytes),
                            [](std::byte a, uint8_t b) { return a == std::byte{b}; });
}

Result<PngSize> parse_png_size(std::span<const std::byte> stream) {
  const bool has_header =
      stream.size() >= kPngHeaderBytes &&
      std::ranges::equal(stream.first(kPngBegin.size()), kPngBegin,
                         [](std::byte a, uint8_t b) { return a == std::byte{b}; });
  if (!has_header) return base::corrupt("it does not begin as a PNG does; write it again");
  const uint32_t width = png_number(stream, 16), height = png_number(stream, 20);
  const auto bits = static_cast<int>(stream[24]);
  if (width == 0 || height == 0) return base::corrupt("a PNG without pixels; write it again");
  if (bits > 8) {
    return base::unsupported(
        fmt::format("a PNG with samples of {} bits; convert it to 8, or to JPEG", bits));
  }
  const PngSize size{static_cast<uint16_t>(width), static_cast<uint16_t>(height)};
  if (width > kMaxPngSide || height > kMaxPngSide || size.rgb_bytes() > kMaxPngRgbBytes) {
    return base::unsupported(
        fmt::format("a PNG of {} x {} pixels; sides of up to {} and {} MiB of RGB are read", width,
                    height, kMaxPngSide, kMaxPngRgbBytes >> 20));
  }
  return size;
}

Result<std::vector<std::byte>> decode_png(std::span<const std::byte> stream) {
  HANJI_ASSIGN_OR_RETURN(const PngSize size, parse_png_size(stream));
  png_image image = {};
  image.version = PNG_IMAGE_VERSION;
  const auto failed = [&] {
    const std::string words = image.message;
    png_image_free(&image);
    return base::corrupt(fmt::format("libpng: {}", words));
  };
  if (png_image_begin_read_from_memory(&image, stream.data(), stream.size()) == 0) return failed();
  image.format = PNG_FORMAT_RGBA;
  const size_t pixels = size_t{size.width} * size.height;
  if (image.width != size.width || image.height != size.height) return failed();
  std::vector<std::byte> rows(kRgba * pixels);
  const bool is_read = png_image_finish_read(&image, nullptr, rows.data(), 0, nullptr) != 0;
  // A warning is of damage too: the rest of the pixels may be anything.
  if (!is_read || PNG_IMAGE_FAILED(image)) return failed();
  for (size_t i = 0; i < pixels; ++i) {
    std::copy_n(rows.begin() + static_cast<std::ptrdiff_t>(kRgba * i), 3,
                rows.begin() + static_cast<std::ptrdiff_t>(3 * i));
  }
  rows.resize(3 * pixels);
  return rows;
}

}  // namespace hanji::data::internal
