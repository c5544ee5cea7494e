#include "hanji/data/contact_sheet.h"

#include <gmock/gmock.h>
#include <png.h>

#include <set>

#include "hanji/data/beton_writer.h"
#include "hanji/data/internal/canvas.h"
#include "hanji/test/temporary_folder.h"

namespace hanji::data {
namespace {

using internal::Canvas;
using internal::RgbImage;

RgbImage read_png(const std::string& png) {
  png_image image = {};
  image.version = PNG_IMAGE_VERSION;
  EXPECT_TRUE(png_image_begin_read_from_memory(&image, png.data(), png.size()) != 0);
  image.format = PNG_FORMAT_RGB;
  RgbImage out{image.width, image.height, std::vector<uint8_t>(PNG_IMAGE_SIZE(image))};
  EXPECT_TRUE(png_image_finish_read(&image, nullptr, out.rgb.data(), 0, nullptr) != 0);
  return out;
}

std::array<int, 3> pixel(const RgbImage& image, int64_t x, int64_t y) {
  const uint8_t* at = image.rgb.data() + 3 * (y * image.width + x);
  return {at[0], at[1], at[2]};
}

/// Images of 40 x 20 pixels of one colour, which is their number by ten.
std::filesystem::path write_plain(const std::filesystem::path& path, int count) {
  auto writer =
      BetonWriter::create(
          path, {{"image", BetonType::kRgbImage}, {"label", BetonType::kInt}},
          {.num_samples = static_cast<uint64_t>(count), .provenance = R"({"classes":["cat"]})"})
          .or_throw();
  for (int i = 0; i < count; ++i) {
    const std::string rows(2400, static_cast<char>(10 * i));
    const BetonValue values[] = {
        {.width = 40, .height = 20, .bytes = std::as_bytes(std::span(rows))}, {.integer = i % 2}};
    base::throw_if_error(writer.append(values));
  }
  base::throw_if_error(writer.finish());
  return path;
}

TEST(ContactSheet, HasImagesSpreadOverTheFileInTheMiddleOfTheirCells) {
  const test::TemporaryFolder folder;
  const auto file = write_plain(folder.path() / "x", 12);
  const RgbImage sheet =
      read_png(contact_sheet(file, {.count = 4, .columns = 2, .cell = 20}).or_throw());
  EXPECT_EQ(sheet.width, 2 * 24 + 4);
  EXPECT_EQ(sheet.height, 2 * 36 + 4);
  // 40 x 20 becomes 20 x 10, with white above and below.
  EXPECT_EQ(pixel(sheet, 14, 14), (std::array{0, 0, 0})) << "sample 0";
  EXPECT_EQ(pixel(sheet, 38, 14), (std::array{30, 30, 30})) << "sample 3 of 12";
  EXPECT_EQ(pixel(sheet, 38, 50), (std::array{90, 90, 90})) << "sample 9 of 12";
  EXPECT_EQ(pixel(sheet, 14, 6), (std::array{255, 255, 255}));
}

TEST(ContactSheet, LabelsAreWrittenBelow) {
  const test::TemporaryFolder folder;
  const auto file = write_plain(folder.path() / "x", 2);
  const RgbImage sheet =
      read_png(contact_sheet(file, {.count = 2, .columns = 2, .cell = 40}).or_throw());
  Canvas expected(40, 8);
  expected.write("0 cat", 0, 0, 40);
  const RgbImage text = read_png(expected.png().or_throw());
  for (int64_t y = 0; y < 8; ++y) {
    for (int64_t x = 0; x < 40; ++x)
      ASSERT_EQ(pixel(sheet, 4 + x, 46 + y), pixel(text, x, y)) << x << " " << y;
  }
}

TEST(ContactSheet, AnAugmentedRowIsTheImageAndWhatEpochsMakeOfIt) {
  const test::TemporaryFolder folder;
  const auto file = write_plain(folder.path() / "x", 3);
  const SheetSamples samples{
      .stages = plan::parse_image_stages("center_crop(ratio = 1), cutout(pixels = 4), normalise")
                    .or_throw(),
      .size = 10};
  const RgbImage sheet =
      read_png(augmented_sheet(file, samples, {.count = 3, .columns = 5, .cell = 20}).or_throw());
  // A pixel becomes four; the cells are as wide as "epoch 0".
  EXPECT_EQ(sheet.width, 5 * 46 + 4);
  std::set<std::string> views;
  for (int64_t epoch = 0; epoch < 4; ++epoch) {
    std::string view;
    for (int64_t at = 0; at < 100; ++at) {
      const int64_t x = 4 + 46 * (epoch + 1) + 11 + at % 10 * 2, y = 4 + 36 * 2 + at / 10 * 2;
      const auto colour = pixel(sheet, x, y);
      EXPECT_EQ(pixel(sheet, x + 1, y + 1), colour);
      view += static_cast<char>(colour[0]);
      const bool is_image = colour == std::array{20, 20, 20};
      EXPECT_TRUE(is_image || colour == (std::array{124, 116, 104}))
          << "the mean's levels in the hole";
    }
    EXPECT_EQ(std::ranges::count(view, 124), 16) << epoch;
    views.insert(view);
  }
  EXPECT_GT(views.size(), 1) << "another hole in each epoch";
}

TEST(ContactSheet, LabelsOfSmallAugmentedSamplesAreWhole) {
  const test::TemporaryFolder folder;
  const auto file = write_plain(folder.path() / "x", 2);
  const SheetSamples samples{.stages = plan::parse_image_stages("center_crop").or_throw(),
                             .size = 8};
  const RgbImage sheet =
      read_png(augmented_sheet(file, samples, {.count = 1, .columns = 2, .cell = 8}).or_throw());
  Canvas expected(42, 8);
  expected.write("epoch 0", 0, 0, 42);
  const RgbImage text = read_png(expected.png().or_throw());
  for (int64_t y = 0; y < 8; ++y) {
    for (int64_t x = 0; x < 42; ++x)
      ASSERT_EQ(pixel(sheet, 4 + 46 + x, 14 + y), pixel(text, x, y)) << x << " " << y;
  }
}

TEST(ContactSheet, SaysHowFarItIsAndEndsEarly) {
  const test::TemporaryFolder folder;
  const auto file = write_plain(folder.path() / "x", 6);
  int64_t most = 0;
  const auto count = [&](int64_t done, int64_t total) {
    EXPECT_EQ(done, ++most);
    EXPECT_EQ(total, 4);
    return done < 3;
  };
  const Status status = contact_sheet(file, {.count = 4, .proceed = count}).status();
  EXPECT_EQ(status.code(), Code::kCancelled);
  EXPECT_EQ(most, 3);
  const auto stop = [](int64_t, int64_t total) {
    EXPECT_EQ(total, 2 * 5);
    return false;
  };
  EXPECT_EQ(augmented_sheet(file, {.size = 16}, {.count = 2, .columns = 5, .proceed = stop})
                .status()
                .code(),
            Code::kCancelled);
}

TEST(ContactSheet, FilesWithoutImagesAndSheetsWithoutCellsAreRejected) {
  const test::TemporaryFolder folder;
  const auto file = write_plain(folder.path() / "x", 2);
  EXPECT_EQ(contact_sheet(file, {.count = 0}).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(contact_sheet(file, {.columns = 1 << 14, .cell = 1 << 14}).status().code(),
            Code::kInvalidArgument);
  auto writer =
      BetonWriter::create(folder.path() / "y", {{"x", BetonType::kInt}}, {.num_samples = 1})
          .or_throw();
  const BetonValue value{.integer = 1};
  base::throw_if_error(writer.append({&value, 1}));
  base::throw_if_error(writer.finish());
  EXPECT_EQ(contact_sheet(folder.path() / "y", {}).status().code(), Code::kUnsupported);
}

TEST(Canvas, EveryPrintableCharacterIsAnother) {
  std::set<std::string> seen;
  for (char c = ' '; c <= '~'; ++c) {
    Canvas canvas(6, 8);
    canvas.write(std::string(1, c), 0, 0, 6);
    seen.insert(canvas.png().or_throw());
  }
  EXPECT_EQ(seen.size(), 95);
}

}  // namespace
}  // namespace hanji::data
