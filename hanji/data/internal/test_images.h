#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <string>
#include <vector>
// after <cstdio>, which it needs
#include <jpeglib.h>

#include "hanji/base/random.h"
#include "hanji/data/internal/jpeg_reader.h"

namespace hanji::data::internal {

struct TestJpeg {
  int64_t width = 100;
  int64_t height = 80;
  int horizontal = 2;  ///< Sampling factors of the luminance: 2 x 2 is 4:2:0.
  int vertical = 2;
  bool is_progressive = false;
  int components = 3;    ///< 1: gray, 4: CMYK.
  bool is_ycck = false;  ///< Of 4 components.
  bool is_arithmetic = false;
  int rows_per_restart = 0;
};

/// Rows of a picture with edges, gradients and noise.
inline std::vector<uint8_t> test_pixels(int64_t width, int64_t height, int components = 3) {
  std::vector<uint8_t> pixels;
  for (int64_t y = 0; y < height; ++y) {
    for (int64_t x = 0; x < width; ++x) {
      for (int c = 0; c < components; ++c) {
        const auto key = static_cast<uint64_t>(x << 20 | y << 2 | c);
        const int64_t noise = static_cast<int64_t>(base::mix(7, key) % 40);
        pixels.push_back(
            static_cast<uint8_t>(x * 2 + y * 3 + c * 50 + noise + (x / 9 + y / 11) % 2 * 80));
      }
    }
  }
  return pixels;
}

/// Encodes test_pixels().
inline std::string encode_jpeg(const TestJpeg& kind) {
  jpeg_compress_struct encoder = {};
  jpeg_error_mgr errors = {};
  encoder.err = jpeg_std_error(&errors);
  jpeg_create_compress(&encoder);
  unsigned char* bytes = nullptr;
  unsigned long size = 0;  // NOLINT: libjpeg's type
  jpeg_mem_dest(&encoder, &bytes, &size);
  encoder.image_width = static_cast<JDIMENSION>(kind.width);
  encoder.image_height = static_cast<JDIMENSION>(kind.height);
  encoder.input_components = kind.components;
  encoder.in_color_space =
      kind.components == 1 ? JCS_GRAYSCALE : (kind.components == 3 ? JCS_RGB : JCS_CMYK);
  jpeg_set_defaults(&encoder);
  jpeg_set_quality(&encoder, 90, TRUE);
  encoder.restart_in_rows = kind.rows_per_restart;
  if (kind.components == 3) {
    encoder.comp_info[0].h_samp_factor = kind.horizontal;
    encoder.comp_info[0].v_samp_factor = kind.vertical;
  }
  if (kind.is_ycck) jpeg_set_colorspace(&encoder, JCS_YCCK);
  encoder.arith_code = kind.is_arithmetic ? TRUE : FALSE;
  if (kind.is_progressive) jpeg_simple_progression(&encoder);
  jpeg_start_compress(&encoder, TRUE);
  std::vector<uint8_t> pixels = test_pixels(kind.width, kind.height, kind.components);
  for (int64_t y = 0; y < kind.height; ++y) {
    JSAMPROW row = pixels.data() + y * kind.width * kind.components;
    jpeg_write_scanlines(&encoder, &row, 1);
  }
  jpeg_finish_compress(&encoder);
  std::string stream(reinterpret_cast<const char*>(bytes), size);
  std::free(bytes);  // NOLINT: allocated by libjpeg
  jpeg_destroy_compress(&encoder);
  return stream;
}

inline std::span<const std::byte> bytes_of(const std::string& stream) {
  return std::as_bytes(std::span(stream));
}

inline Result<std::vector<uint8_t>> decode_box(JpegReader& reader, const std::string& stream,
                                               ImageSize size, PixelBox box) {
  HANJI_RETURN_IF_ERROR(reader.begin(bytes_of(stream), size, box));
  std::vector<uint8_t> pixels;
  for (int64_t y = 0; y < box.height; ++y) {
    HANJI_ASSIGN_OR_RETURN(const uint8_t* row, reader.next_row());
    pixels.insert(pixels.end(), row, row + 3 * box.width);
  }
  return pixels;
}

}  // namespace hanji::data::internal
