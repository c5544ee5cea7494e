#include "hanji/data/internal/png_reader.h"

#include <gmock/gmock.h>

#include "hanji/data/internal/png_writer.h"
#include "hanji/data/internal/test_images.h"

namespace hanji::data::internal {
namespace {

using testing::HasSubstr;

std::string png_of(uint32_t width, uint32_t height) {
  std::vector<uint8_t> rgb(size_t{3} * width * height);
  for (size_t i = 0; i < rgb.size(); ++i) rgb[i] = static_cast<uint8_t>(7 * i + i / 5);
  return encode_png(rgb, width, height).or_throw();
}

TEST(PngReader, PixelsAreThoseThatWereWritten) {
  const std::string png = png_of(13, 9);
  const auto size = parse_png_size(bytes_of(png)).or_throw();
  EXPECT_EQ(size.width, 13);
  EXPECT_EQ(size.height, 9);
  const auto rows = decode_png(bytes_of(png)).or_throw();
  ASSERT_EQ(rows.size(), 3U * 13 * 9);
  for (size_t i = 0; i < rows.size(); ++i) {
    ASSERT_EQ(rows[i], std::byte(static_cast<uint8_t>(7 * i + i / 5))) << i;
  }
}

TEST(PngReader, EveryCutIsAnError) {
  const std::string png = png_of(13, 9);
  // The end chunk, 12 bytes, holds no pixel.
  for (size_t bytes = 0; bytes + 12 < png.size(); ++bytes) {
    EXPECT_FALSE(decode_png(bytes_of(png).first(bytes)).ok()) << bytes;
  }
}

TEST(PngReader, AFlippedByteIsAnErrorOrLeavesThePixels) {
  const std::string png = png_of(13, 9);
  const auto expected = decode_png(bytes_of(png)).or_throw();
  int num_errors = 0;
  for (size_t i = 0; i < png.size(); ++i) {
    std::string damaged = png;
    damaged[i] = static_cast<char>(damaged[i] ^ 0x41);
    const auto found = decode_png(bytes_of(damaged));
    num_errors += found.ok() ? 0 : 1;
    if (found.ok()) EXPECT_EQ(*found, expected) << i;
  }
  EXPECT_GT(num_errors, static_cast<int>(png.size()) / 2);
}

TEST(PngReader, WhatItDoesNotReadIsRefusedByName) {
  std::string png = png_of(2, 2);
  png[24] = 16;
  EXPECT_THAT(parse_png_size(bytes_of(png)).status().message(), HasSubstr("16 bits"));
  png[24] = 8;
  png[17] = 1;
  EXPECT_THAT(parse_png_size(bytes_of(png)).status().message(), HasSubstr("sides of up to 65535"));
  EXPECT_EQ(parse_png_size(bytes_of("GIF89a")).status().code(), Code::kCorrupt);
}

}  // namespace
}  // namespace hanji::data::internal
