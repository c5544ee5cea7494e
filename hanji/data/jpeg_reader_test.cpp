#include "hanji/data/internal/jpeg_reader.h"

#include <gmock/gmock.h>

#include "hanji/data/internal/test_images.h"

namespace hanji::data::internal {
namespace {

using testing::HasSubstr;

Result<std::vector<uint8_t>> decode_all(const std::string& stream, ImageSize size) {
  JpegReader reader;
  return decode_box(reader, stream, size, {0, 0, size.width, size.height});
}

Status status_of(const std::string& stream, ImageSize size) {
  return decode_all(stream, size).status();
}

const ImageSize kTestSize = {100, 80};

/// Also where blocks, their shared colours and the smoothing between them are cut.
TEST(JpegReader, EveryBoxHasThePixelsOfAWholeDecode) {
  constexpr std::array<std::array<int, 2>, 6> kSamplings = {
      {{1, 1}, {2, 1}, {2, 2}, {1, 2}, {4, 1}, {4, 2}}};
  JpegReader reader;
  uint64_t draw = 0;
  const auto below = [&draw](int64_t most) {
    return static_cast<int64_t>(base::mix(1, draw++) % static_cast<uint64_t>(most));
  };
  for (int i = 0; i < 120; ++i) {
    const auto sampling = kSamplings[i % 6];
    const TestJpeg kind{.width = 1 + below(150),
                        .height = 1 + below(150),
                        .horizontal = sampling[0],
                        .vertical = sampling[1],
                        .is_progressive = i % 4 == 3,
                        .components = i % 5 == 4 ? 1 : (i % 5 == 3 ? 4 : 3),
                        .is_ycck = i % 10 == 3,
                        .is_arithmetic = i % 7 == 6,
                        .rows_per_restart = i % 3 == 2};
    const std::string stream = encode_jpeg(kind);
    const ImageSize size{kind.width, kind.height};
    const auto all = decode_all(stream, size).or_throw();
    for (int part = 0; part < 10; ++part) {
      PixelBox box{.x = below(kind.width), .y = below(kind.height)};
      box.width = 1 + below(kind.width - box.x);
      box.height = 1 + below(kind.height - box.y);
      const auto found = decode_box(reader, stream, size, box).or_throw();
      bool same = true;
      for (int64_t y = 0; y < box.height; ++y) {
        const auto* expected = all.data() + 3 * ((box.y + y) * kind.width + box.x);
        same = same &&
               std::equal(expected, expected + 3 * box.width, found.data() + 3 * y * box.width);
      }
      EXPECT_TRUE(same) << i << ": " << kind.width << " x " << kind.height << " at " << box.x
                        << ", " << box.y << ": " << box.width << " x " << box.height;
    }
  }
}

/// At a multiple of 16 or 32 bytes, libjpeg-turbo writes past the caches what is read at once.
TEST(JpegReader, RowsBeginWhereTheyStayInTheCaches) {
  for (int64_t width = 16; width < 400; width += 16) {
    const std::string stream = encode_jpeg({.width = width, .height = 16});
    JpegReader reader;
    ASSERT_TRUE(reader.begin(bytes_of(stream), {width, 16}, {0, 0, width, 16}, width).ok());
    const uint8_t* row = reader.next_row().or_throw();
    EXPECT_NE(reinterpret_cast<uintptr_t>(row) % 16, 0U) << width;
  }
}

TEST(JpegReader, PixelsAreNearThoseThatWereEncoded) {
  const auto found =
      decode_all(encode_jpeg({.horizontal = 1, .vertical = 1}), kTestSize).or_throw();
  const auto expected = test_pixels(100, 80);
  double sum = 0;
  for (size_t i = 0; i < found.size(); ++i) sum += std::abs(found[i] - expected[i]);
  EXPECT_LT(sum / static_cast<double>(found.size()), 12);
}

TEST(JpegReader, GrayHasThreeEqualChannels) {
  const auto found = decode_all(encode_jpeg({.components = 1}), kTestSize).or_throw();
  for (size_t i = 0; i < found.size(); i += 3) {
    ASSERT_EQ(found[i], found[i + 1]);
    ASSERT_EQ(found[i], found[i + 2]);
  }
}

/// What is encoded is Adobe's inverted inks: red is C K / 255, up to what the coding loses.
TEST(JpegReader, InksBecomeColours) {
  const auto inks = test_pixels(100, 80, 4);
  for (const bool is_ycck : {false, true}) {
    const auto found =
        decode_all(
            encode_jpeg({.horizontal = 1, .vertical = 1, .components = 4, .is_ycck = is_ycck}),
            kTestSize)
            .or_throw();
    double sum = 0;
    for (size_t i = 0; i < found.size(); ++i) {
      const int ink = inks[i / 3 * 4 + i % 3], black = inks[i / 3 * 4 + 3];
      sum += std::abs(found[i] - ink * black / 255.0);
    }
    EXPECT_LT(sum / static_cast<double>(found.size()), 12) << is_ycck;
  }
}

TEST(JpegReader, ArithmeticCodingHasThePixelsOfHuffmans) {
  for (const bool is_progressive : {false, true}) {
    EXPECT_EQ(*decode_all(encode_jpeg({.is_progressive = is_progressive, .is_arithmetic = true}),
                          kTestSize),
              *decode_all(encode_jpeg({.is_progressive = is_progressive}), kTestSize));
  }
}

TEST(JpegReader, BytesBetweenSegmentsAndAnOrientationChangeNothing) {
  const std::string stream = encode_jpeg({});
  const std::string exif(
      "\xFF\xE1\x00\x22"
      "Exif\0\0II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0\x06\0\0\0\0\0\0\0",
      36);
  const std::string rotated = stream.substr(0, 2) + exif + stream.substr(2);
  EXPECT_EQ(*decode_all(rotated, kTestSize), *decode_all(stream, kTestSize));
  const std::string stray = stream.substr(0, 20) + "stray" + stream.substr(20);
  EXPECT_EQ(*decode_all(stray, kTestSize), *decode_all(stream, kTestSize));
}

TEST(JpegReader, RejectsOtherKindsByName) {
  std::string other = encode_jpeg({});
  other[other.find("\xFF\xC0") + 1] = '\xC3';
  EXPECT_EQ(status_of(other, kTestSize).code(), Code::kUnsupported) << "lossless";
  EXPECT_THAT(status_of("\x89PNG\r\n\x1a\n0123456789", kTestSize).message(),
              HasSubstr("no JPEG but an image of the format PNG"));
  EXPECT_EQ(status_of("", kTestSize).code(), Code::kCorrupt);
}

TEST(JpegReader, RejectsASizeThatIsNotTheRecords) {
  EXPECT_THAT(status_of(encode_jpeg({}), {100, 81}).message(),
              HasSubstr("100 x 80 pixels, its record 100 x 81"));
}

/// Before memory is allocated for them.
TEST(JpegReader, RejectsScansWithMoreCoefficientsThanAGibibyte) {
  std::string stream = encode_jpeg({.is_progressive = true});
  const size_t frame = stream.find("\xFF\xC2");
  stream.replace(frame + 5, 4, "\xFF\xDC\xFF\xDC");
  const Status status = status_of(stream, {65500, 65500});
  EXPECT_EQ(status.code(), Code::kUnsupported);
  EXPECT_THAT(status.message(), HasSubstr("65500 x 65500 pixels in several scans"));
}

TEST(JpegReader, EveryTruncationIsAnError) {
  for (const bool is_progressive : {false, true}) {
    const std::string stream = encode_jpeg({.is_progressive = is_progressive});
    for (size_t size = 0; size + 40 < stream.size(); size += 97) {
      EXPECT_EQ(status_of(stream.substr(0, size), kTestSize).code(), Code::kCorrupt) << size;
    }
  }
}

TEST(JpegReader, DamageBelowTheBoxIsNotSeen) {
  std::string stream = encode_jpeg({.height = 400});
  JpegReader reader;
  const PixelBox top{0, 0, 100, 16};
  const auto expected = decode_box(reader, stream, {100, 400}, top).or_throw();
  stream.resize(stream.size() / 2);
  EXPECT_EQ(*decode_box(reader, stream, {100, 400}, top), expected);
}

/// Each is an error or some pixels, and a reader goes on after either.
TEST(JpegReader, AnyDamageEndsInPixelsOrAnError) {
  const std::string stream = encode_jpeg({.width = 40, .height = 40});
  JpegReader reader;
  const PixelBox all{0, 0, 40, 40};
  const auto expected = decode_box(reader, stream, {40, 40}, all).or_throw();
  int errors = 0;
  for (uint64_t i = 0; i < 3000; ++i) {
    std::string damaged = stream;
    damaged[base::mix(2, i) % damaged.size()] ^= static_cast<char>(1 + base::mix(3, i) % 255);
    errors += decode_box(reader, damaged, {40, 40}, all).ok() ? 0 : 1;
  }
  EXPECT_GT(errors, 100);
  EXPECT_EQ(*decode_box(reader, stream, {40, 40}, all), expected);
}

}  // namespace
}  // namespace hanji::data::internal
