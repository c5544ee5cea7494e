// JPEGs that data sets of photos really have: each becomes the pixels that libjpeg-turbo gives its
// users, or an error that names the sample.
#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <cmath>

#include "hanji/data/batch.h"
#include "hanji/data/beton_images.h"
#include "hanji/data/beton_writer.h"
#include "hanji/data/internal/jpeg_header.h"
#include "hanji/data/internal/test_images.h"
#include "hanji/test/temporary_folder.h"

namespace hanji::data {
namespace {

using internal::encode_jpeg;
using testing::HasSubstr;

struct OddJpeg {
  std::string name;
  std::string stream;
  std::string refusal = {};  ///< Part of the error; empty: it is decoded.
  uint16_t width = 100;
  uint16_t height = 80;
};

std::string behind_start(const std::string& stream, const std::string& segment) {
  return stream.substr(0, 2) + segment + stream.substr(2);
}

/// With byte `at` of its frame header changed; 0 is the marker's first.
std::string with_frame_byte(std::string stream, size_t at, char value) {
  const size_t frame = std::min(stream.find("\xFF\xC0"), stream.find("\xFF\xC2"));
  stream[frame + at] = value;
  return stream;
}

std::string of_65500_pixels(std::string stream) {
  const size_t frame = std::min(stream.find("\xFF\xC0"), stream.find("\xFF\xC2"));
  return stream.replace(frame + 5, 4, "\xFF\xDC\xFF\xDC");
}

std::vector<OddJpeg> odd_jpegs() {
  const std::string stream = encode_jpeg({});
  const std::string exif(
      "\xFF\xE1\x00\x22"
      "Exif\0\0II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0\x06\0\0\0\0\0\0\0",
      36);
  const std::string png("\x89PNG\r\n\x1A\n\0\0\0\rIHDR\0\0\0\x64\0\0\0\x50\x10\x02\0\0\0", 29);
  return {
      {"4:2:0", stream},
      {"4:4:4", encode_jpeg({.horizontal = 1, .vertical = 1})},
      {"4:1:1", encode_jpeg({.horizontal = 4, .vertical = 1})},
      {"4:4:0", encode_jpeg({.horizontal = 1, .vertical = 2})},
      {"gray", encode_jpeg({.components = 1})},
      {"CMYK", encode_jpeg({.components = 4})},
      {"YCCK", encode_jpeg({.components = 4, .is_ycck = true})},
      {"progressive", encode_jpeg({.is_progressive = true})},
      {"progressive CMYK", encode_jpeg({.is_progressive = true, .components = 4})},
      {"arithmetic", encode_jpeg({.is_arithmetic = true})},
      {"restart markers", encode_jpeg({.rows_per_restart = 1})},
      {"EXIF orientation", behind_start(stream, exif)},
      {"bytes behind the end", stream + std::string(1000, 'x')},
      {"truncated", stream.substr(0, stream.size() / 2), "Premature end of JPEG file"},
      {"truncated header", stream.substr(0, 100), "Premature end of JPEG file"},
      {"a PNG of 16 bits", png, "no JPEG but an image of the format PNG"},
      {"a GIF", "GIF89a", "no JPEG but an image of the format GIF"},
      {"text", "<html>", "no JPEG: it does not begin with the bytes FF D8"},
      {"12 bits", with_frame_byte(stream, 4, 12), "Unsupported JPEG data precision 12"},
      {"lossless", with_frame_byte(stream, 1, '\xC3'), "Unsupported JPEG process"},
      {"another size than its record's", stream, "100 x 80 pixels, its record 100 x 79", 100, 79},
      {"a claim of 65500 x 65500", of_65500_pixels(stream), "the JPEG: ", 65500, 65500},
      {"a progressive claim", of_65500_pixels(encode_jpeg({.is_progressive = true})),
       "65500 x 65500 pixels in several scans", 65500, 65500}};
}

/// Decodes as a program that uses libjpeg-turbo and knows Adobe's inverted inks.
std::string decoded_by_libjpeg(const std::string& stream) {
  jpeg_decompress_struct decoder = {};
  jpeg_error_mgr errors = {};
  decoder.err = jpeg_std_error(&errors);
  jpeg_create_decompress(&decoder);
  jpeg_mem_src(&decoder, reinterpret_cast<const unsigned char*>(stream.data()), stream.size());
  jpeg_read_header(&decoder, TRUE);
  const bool has_inks = decoder.num_components == 4;
  decoder.out_color_space = has_inks ? JCS_CMYK : JCS_RGB;
  jpeg_start_decompress(&decoder);
  std::vector<uint8_t> row(size_t{4} * decoder.output_width);
  std::string pixels;
  while (decoder.output_scanline < decoder.output_height) {
    JSAMPROW line = row.data();
    jpeg_read_scanlines(&decoder, &line, 1);
    for (size_t x = 0; x < decoder.output_width; ++x) {
      for (size_t c = 0; c < 3; ++c) {
        const uint8_t* of = row.data() + x * (has_inks ? 4 : 3);
        pixels += static_cast<char>(has_inks ? std::lround(of[c] * of[3] / 255.0) : of[c]);
      }
    }
  }
  jpeg_finish_decompress(&decoder);
  jpeg_destroy_decompress(&decoder);
  return pixels;
}

/// A file of the images, and behind each its pixels: raw ones, or one black pixel for a refusal.
BetonImages write_odd_jpegs(const std::filesystem::path& path) {
  const auto all = odd_jpegs();
  auto writer =
      BetonWriter::create(path, {{"image", BetonType::kRgbImage}, {"label", BetonType::kInt}},
                          {.num_samples = 2 * all.size()})
          .or_throw();
  for (const OddJpeg& one : all) {
    const std::string pixels =
        one.refusal.empty() ? decoded_by_libjpeg(one.stream) : std::string(3, '\0');
    const auto raw_width = static_cast<uint16_t>(one.refusal.empty() ? one.width : 1);
    const auto raw_height = static_cast<uint16_t>(one.refusal.empty() ? one.height : 1);
    const BetonValue jpeg[] = {{.mode = BetonImageMode::kJpeg,
                                .width = one.width,
                                .height = one.height,
                                .bytes = internal::bytes_of(one.stream)},
                               {.integer = 0}};
    const BetonValue raw[] = {
        {.width = raw_width, .height = raw_height, .bytes = internal::bytes_of(pixels)},
        {.integer = 0}};
    base::throw_if_error(writer.append(jpeg));
    base::throw_if_error(writer.append(raw));
  }
  base::throw_if_error(writer.finish());
  BetonImagesOptions options{.size = 40, .validation_fraction = 0};
  options.stages = plan::parse_image_stages("center_crop(ratio = 1)").or_throw();
  return BetonImages::create(BetonFile::open(path).or_throw(), options).or_throw();
}

TEST(OddJpegs, EachIsDecodedAsByLibjpegOrRefusedByNameWithItsSample) {
  const test::TemporaryFolder folder;
  const BetonImages images = write_odd_jpegs(folder.path() / "odd.beton");
  layers::Batch found, expected;
  shape_batch(images.shape(), {0, 1}, found);
  shape_batch(images.shape(), {0, 1}, expected);
  int64_t sample = 0;
  for (const OddJpeg& one : odd_jpegs()) {
    const Status status = images.read(Part::kTrain, sample, found, 0);
    ASSERT_TRUE(images.read(Part::kTrain, sample + 1, expected, 0).ok());
    if (one.refusal.empty()) {
      EXPECT_TRUE(status.ok()) << one.name << ": " << status.message();
      EXPECT_TRUE(at::equal(found.inputs, expected.inputs)) << one.name;
    } else {
      EXPECT_THAT(status.message(), HasSubstr("sample " + std::to_string(sample) + ": "))
          << one.name;
      EXPECT_THAT(status.message(), HasSubstr(one.refusal)) << one.name;
    }
    sample += 2;
  }
}

/// Before anything is written: what has no frame header that is decoded.
TEST(OddJpegs, WhatIsSeenInTheHeaderIsRefusedWhenAFileIsMade) {
  for (const OddJpeg& one : odd_jpegs()) {
    const bool is_refused = !internal::parse_jpeg_size(internal::bytes_of(one.stream)).ok();
    const bool is_seen = one.name == "truncated header" || one.name == "a PNG of 16 bits" ||
                         one.name == "a GIF" || one.name == "text" || one.name == "12 bits" ||
                         one.name == "lossless";
    EXPECT_EQ(is_refused, is_seen) << one.name;
  }
}

}  // namespace
}  // namespace hanji::data
