#include "hanji/data/internal/jpeg_rows.h"

#include <gmock/gmock.h>

#include "hanji/data/internal/jpeg_reader.h"
#include "hanji/data/internal/test_images.h"

namespace hanji::data::internal {
namespace {

Result<std::vector<uint8_t>> decode_box(const std::string& stream, ImageSize size, PixelBox box) {
  JpegReader reader;
  return decode_box(reader, stream, size, box);
}

std::string with_rows(const TestJpeg& kind) {
  return add_jpeg_rows(bytes_of(encode_jpeg(kind))).or_throw();
}

TEST(JpegRows, EveryBoxHasThePixelsOfTheImageWithoutAnIndex) {
  constexpr std::array<std::array<int, 2>, 6> kSamplings = {
      {{1, 1}, {2, 1}, {2, 2}, {1, 2}, {4, 1}, {4, 2}}};
  uint64_t draw = 0;
  const auto below = [&draw](int64_t most) {
    return static_cast<int64_t>(base::mix(3, draw++) % static_cast<uint64_t>(most));
  };
  for (int i = 0; i < 60; ++i) {
    const TestJpeg kind{.width = 1 + below(90),
                        .height = 1 + below(250),
                        .horizontal = kSamplings[i % 6][0],
                        .vertical = kSamplings[i % 6][1],
                        .is_progressive = i % 4 == 3,
                        .components = i % 5 == 4 ? 1 : 3};
    const std::string before = encode_jpeg(kind), after = with_rows(kind);
    const auto rows = find_jpeg_rows(bytes_of(after));
    ASSERT_TRUE(rows) << i;
    EXPECT_EQ(rows->height, kind.height);
    EXPECT_EQ(rows->row_height, kind.components == 1 ? 8 : 8 * kind.vertical);
    for (int part = 0; part < 10; ++part) {
      PixelBox box{.x = below(kind.width), .y = below(kind.height)};
      box.width = 1 + below(kind.width - box.x);
      box.height = 1 + below(kind.height - box.y);
      EXPECT_EQ(decode_box(after, {kind.width, kind.height}, box).or_throw(),
                decode_box(before, {kind.width, kind.height}, box).or_throw())
          << i << ": " << kind.width << " x " << kind.height << " at " << box.x << ", " << box.y;
    }
  }
}

TEST(JpegRows, RowsAboveABoxAreNotRead) {
  std::string stream = with_rows({.width = 100, .height = 160});
  const JpegRows rows = find_jpeg_rows(bytes_of(stream)).value();
  ASSERT_EQ(rows.count(), 10);
  const PixelBox box{20, 100, 50, 40};
  const auto expected = decode_box(stream, {100, 160}, box).or_throw();
  for (size_t at = rows.begin(0) + 4; at < rows.begin(0) + 12; ++at) stream[at] = '\x55';
  EXPECT_EQ(decode_box(stream, {100, 160}, box).or_throw(), expected);
  const auto whole = decode_box(stream, {100, 160}, {0, 0, 100, 160});
  const std::string undamaged = with_rows({.width = 100, .height = 160});
  EXPECT_TRUE(!whole.ok() ||
              *whole != decode_box(undamaged, {100, 160}, {0, 0, 100, 160}).or_throw())
      << "a whole image has them";
}

TEST(JpegRows, SegmentsOfCamerasAreKeptAndAnIndexIsAddedOnce) {
  std::string photo = encode_jpeg({});
  photo.insert(2, std::string("\xFF\xE1\x00\x0C"
                              "Exif\0\0abcd",
                              14));
  const std::string once = add_jpeg_rows(bytes_of(photo)).or_throw();
  EXPECT_NE(once.find(std::string("Exif\0\0abcd", 10)), std::string::npos);
  EXPECT_EQ(add_jpeg_rows(bytes_of(once)).or_throw(), once);
}

TEST(JpegRows, OtherStreamsStayAndDamagedOnesAreErrors) {
  const std::string inks = encode_jpeg({.components = 4});
  EXPECT_EQ(add_jpeg_rows(bytes_of(inks)).or_throw(), inks);
  EXPECT_FALSE(find_jpeg_rows(bytes_of(inks)));
  EXPECT_FALSE(find_jpeg_rows(bytes_of(encode_jpeg({.rows_per_restart = 1}))));
  const std::string whole = encode_jpeg({});
  const Status cut = add_jpeg_rows(bytes_of(whole.substr(0, whole.size() / 2))).status();
  EXPECT_EQ(cut.code(), Code::kCorrupt);
  EXPECT_EQ(add_jpeg_rows(bytes_of("no image")).status().code(), Code::kCorrupt);
}

/// The index is a hint: one that the stream does not bear out is not used.
TEST(JpegRows, AnIndexThatIsWrongOrCutIsIgnored) {
  const std::string good = with_rows({.width = 60, .height = 200});
  const JpegRows rows = find_jpeg_rows(bytes_of(good)).value();
  const auto index_at =
      static_cast<size_t>(reinterpret_cast<const char*>(rows.begins.data()) - good.data());
  const PixelBox box{5, 150, 30, 40};
  const auto expected = decode_box(good, {60, 200}, box).or_throw();
  for (size_t at = index_at; at < index_at + rows.begins.size(); ++at) {
    for (const char flip : {'\x01', '\x80'}) {
      std::string bad = good;
      bad[at] = static_cast<char>(bad[at] ^ flip);
      EXPECT_FALSE(find_jpeg_rows(bytes_of(bad))) << at;
      EXPECT_EQ(decode_box(bad, {60, 200}, box).or_throw(), expected) << at;
    }
  }
  for (size_t size = 0; size < rows.scan_begin + 20; ++size) {
    EXPECT_FALSE(find_jpeg_rows(bytes_of(good).first(size))) << size;
  }
}

}  // namespace
}  // namespace hanji::data::internal
