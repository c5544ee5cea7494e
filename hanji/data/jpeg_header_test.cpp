#include "hanji/data/internal/jpeg_header.h"

#include <gmock/gmock.h>

#include <string>

namespace hanji::data::internal {
namespace {

using testing::HasSubstr;

Result<JpegSize> size_in(const std::string& stream) {
  return parse_jpeg_size(std::as_bytes(std::span(stream)));
}

/// A frame header of 300 x 200 pixels behind a start, an application segment and a table.
std::string jpeg_stream(char frame = '\xC0', char bits = 8, char components = 3) {
  return std::string("\xFF\xD8\xFF\xE0\x00\x04xy\xFF\xC4\x00\x03z\xFF\xFF", 15) + frame +
         std::string("\x00\x08", 2) + bits + std::string("\x00\xC8\x01\x2C", 4) + components;
}

TEST(JpegHeader, FindsTheSizeOfBaselineAndProgressiveStreams) {
  for (const char frame : {'\xC0', '\xC1', '\xC2', '\xC9', '\xCA'}) {
    const auto size = size_in(jpeg_stream(frame)).or_throw();
    EXPECT_EQ(size.width, 300);
    EXPECT_EQ(size.height, 200);
  }
  EXPECT_TRUE(size_in(jpeg_stream('\xC0', 8, 1)).ok()) << "gray";
  EXPECT_TRUE(size_in(jpeg_stream('\xC0', 8, 4)).ok()) << "CMYK";
}

TEST(JpegHeader, RejectsKindsThatAreNotDecodedByName) {
  for (const char frame : {'\xC3', '\xC5', '\xCB', '\xCF'}) {
    EXPECT_EQ(size_in(jpeg_stream(frame)).status().code(), Code::kUnsupported);
  }
  EXPECT_THAT(size_in(jpeg_stream('\xC0', 12)).status().message(), HasSubstr("of 12 bits"));
  EXPECT_THAT(size_in(jpeg_stream('\xC0', 8, 2)).status().message(), HasSubstr("2 components"));
}

TEST(JpegHeader, OtherFormatsUnderTheNameOfAJpegAreNamed) {
  for (const auto& [begin, name] : std::initializer_list<std::pair<std::string, std::string>>{
           {"\x89PNG\r\n\x1A\n", "PNG"},
           {"GIF89a", "GIF"},
           {"RIFFsizeWEBPVP8 ", "WebP"},
           {std::string("\0\0\0\x18"
                        "ftypheic",
                        12),
            "HEIF or AVIF"},
           {std::string("MM\0*", 4), "TIFF"}}) {
    EXPECT_THAT(size_in(begin).status().message(), HasSubstr("an image of the format " + name));
  }
}

TEST(JpegHeader, RejectsEveryTruncationAndOtherFiles) {
  const std::string stream = jpeg_stream();
  for (size_t size = 0; size < stream.size(); ++size) {
    EXPECT_EQ(size_in(stream.substr(0, size)).status().code(), Code::kCorrupt) << size;
  }
  EXPECT_THAT(size_in("\x89PNG\r\n").status().message(), HasSubstr("no JPEG"));
  EXPECT_THAT(size_in("\xFF\xD8xxxx").status().message(), HasSubstr("byte 2 of the JPEG is 78"));
  EXPECT_THAT(size_in(std::string("\xFF\xD8\xFF\xE0\x00\x01xx", 8)).status().message(),
              HasSubstr("the segment at byte 4 of the JPEG has 1 bytes"));
  EXPECT_THAT(size_in(std::string("\xFF\xD8\xFF\xDA\x00\x02", 6)).status().message(),
              HasSubstr("no frame header"));
  std::string empty = jpeg_stream();
  empty[19] = empty[20] = 0;
  EXPECT_THAT(size_in(empty).status().message(), HasSubstr("300 x 0 pixels"));
}

}  // namespace
}  // namespace hanji::data::internal
