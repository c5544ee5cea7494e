#include "hanji/data/internal/jpeg_writer.h"

#include <fmt/format.h>

#include <cstdlib>

#include "hanji/data/internal/jpeg_errors.h"

namespace hanji::data::internal {
namespace {

/// Frees what libjpeg has allocated, however the function ends.
struct JpegEncoder {
  jpeg_compress_struct encoder = {};
  JpegWorkErrors errors;
  unsigned char* bytes = nullptr;
  unsigned long size = 0;  // NOLINT: libjpeg's type

  JpegEncoder() { encoder.err = errors.begin(); }
  JpegEncoder(const JpegEncoder&) = delete;
  JpegEncoder& operator=(const JpegEncoder&) = delete;
  ~JpegEncoder() {
    jpeg_destroy_compress(&encoder);
    std::free(bytes);  // NOLINT: allocated by libjpeg
  }

  /// Behind a place to jump to.
  void run(std::span<const uint8_t> rgb, uint32_t width, uint32_t height, int quality) {
    jpeg_create_compress(&encoder);
    jpeg_mem_dest(&encoder, &bytes, &size);
    encoder.image_width = width;
    encoder.image_height = height;
    encoder.input_components = 3;
    encoder.in_color_space = JCS_RGB;
    jpeg_set_defaults(&encoder);
    jpeg_set_quality(&encoder, quality, TRUE);
    jpeg_start_compress(&encoder, TRUE);
    while (encoder.next_scanline < height) {
      // libjpeg does not write to its input.
      auto* row = const_cast<uint8_t*>(rgb.data() + size_t{3} * width * encoder.next_scanline);
      jpeg_write_scanlines(&encoder, &row, 1);
    }
    jpeg_finish_compress(&encoder);
  }
};

}  // namespace

Result<std::string> encode_jpeg_image(std::span<const uint8_t> rgb, uint32_t width, uint32_t height,
                                      int quality) {
  if (rgb.empty() || rgb.size() != size_t{3} * width * height) {
    return base::internal(
        fmt::format("{} bytes for a JPEG of {} x {} pixels", rgb.size(), width, height));
  }
  JpegEncoder encoder;
  if (setjmp(encoder.errors.jump) != 0) {
    return base::internal(fmt::format("libjpeg-turbo: {}", encoder.errors.message));
  }
  encoder.run(rgb, width, height, quality);
  return std::string(reinterpret_cast<const char*>(encoder.bytes), encoder.size);
}

}  // namespace hanji::data::internal
