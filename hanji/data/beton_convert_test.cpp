#include "hanji/data/beton_convert.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "hanji/base/file.h"
#include "hanji/data/beton_writer.h"
#include "hanji/data/image_files.h"
#include "hanji/data/internal/jpeg_rows.h"
#include "hanji/data/internal/test_images.h"
#include "hanji/data/internal/whole_image.h"
#include "hanji/test/temporary_folder.h"

namespace hanji::data {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

/// Of a sample's first field.
std::string image_bytes(const BetonFile& file, uint64_t sample) {
  const BetonValue value = file.read(sample, 0).or_throw();
  return {reinterpret_cast<const char*>(value.bytes.data()), value.bytes.size()};
}

/// Samples of an image, its number and a text: JPEGs of 100 x 80 at even numbers, raw ones at odd.
class ConvertTest : public testing::Test {
 protected:
  fs::path path(std::string_view name) const { return folder_.path() / name; }

  fs::path write_mixed(uint64_t count) const {
    const std::string jpeg = internal::encode_jpeg({});
    const auto pixels = internal::test_pixels(30, 20);
    auto writer =
        BetonWriter::create(path("from"),
                            {{"image", BetonType::kRgbImage},
                             {"label", BetonType::kInt},
                             {"text", BetonType::kJson}},
                            {.num_samples = count, .provenance = R"({"classes":["cat","../dog"]})"})
            .or_throw();
    for (uint64_t i = 0; i < count; ++i) {
      const std::string text = fmt::format("[{}]", i);
      const BetonValue image =
          i % 2 == 0
              ? BetonValue{.mode = BetonImageMode::kJpeg,
                           .width = 100,
                           .height = 80,
                           .bytes = internal::bytes_of(jpeg)}
              : BetonValue{.width = 30, .height = 20, .bytes = std::as_bytes(std::span(pixels))};
      const BetonValue values[] = {
          image, {.integer = static_cast<int64_t>(i % 3)}, {.bytes = internal::bytes_of(text)}};
      base::throw_if_error(writer.append(values));
    }
    base::throw_if_error(writer.finish());
    return path("from");
  }

  BetonFile convert(const ConvertOptions& options, const std::string& name = "to") const {
    const auto recipe = converted_recipe(path("from"), options).or_throw();
    base::throw_if_error(make_beton(recipe, path(name), {.num_threads = 2}).status());
    return BetonFile::open(path(name)).or_throw();
  }

  const test::TemporaryFolder folder_;
};

TEST_F(ConvertTest, KeepingImagesCopiesEverySample) {
  const auto from = BetonFile::open(write_mixed(5)).or_throw();
  const BetonFile to = convert({});
  for (uint64_t i = 0; i < 5; ++i) {
    EXPECT_EQ(image_bytes(to, i), image_bytes(from, i));
    EXPECT_EQ(to.read(i, 1).or_throw().integer, i % 3);
    EXPECT_EQ(to.read(i, 2).or_throw().bytes.size(), 3);
  }
  EXPECT_EQ(to.provenance(), R"({"classes":["cat","../dog"],"converted":{"images":"keep"}})");
}

TEST_F(ConvertTest, RawImagesAreTheDecodedPixels) {
  const auto from = BetonFile::open(write_mixed(4)).or_throw();
  const BetonFile to = convert({.images = ImageStorage::kRaw});
  internal::WholeImages tools;
  internal::RgbImage whole;
  ASSERT_TRUE(tools.read(from.read(0, 0).or_throw(), whole).ok());
  EXPECT_EQ(image_bytes(to, 0), std::string(whole.rgb.begin(), whole.rgb.end()));
  EXPECT_EQ(image_bytes(to, 1), image_bytes(from, 1));
  EXPECT_EQ(to.verify([](const BetonMistake&) {}), 0);
}

TEST_F(ConvertTest, JpegsKeepTheirBytesUnlessAQualityIsAsked) {
  const auto from = BetonFile::open(write_mixed(4)).or_throw();
  const BetonFile kept = convert({.images = ImageStorage::kJpeg});
  EXPECT_EQ(image_bytes(kept, 0), image_bytes(from, 0));
  EXPECT_EQ(kept.read(1, 0).or_throw().mode, BetonImageMode::kJpeg);
  const BetonFile small = convert({.images = ImageStorage::kJpeg, .quality = 20}, "small");
  EXPECT_LT(image_bytes(small, 0).size(), image_bytes(from, 0).size() / 2);
  EXPECT_LT(image_bytes(small, 1).size(), image_bytes(kept, 1).size());
  EXPECT_EQ(convert({.images = ImageStorage::kJpeg}, "again").read(1, 0).or_throw().bytes.size(),
            image_bytes(kept, 1).size());
}

TEST_F(ConvertTest, ARowIndexKeepsThePixelsOfJpegsAndEveryOtherByte) {
  const auto from = BetonFile::open(write_mixed(4)).or_throw();
  const BetonFile to = convert({.row_index = true});
  EXPECT_TRUE(internal::find_jpeg_rows(to.read(0, 0).or_throw().bytes));
  EXPECT_EQ(image_bytes(to, 1), image_bytes(from, 1));
  internal::WholeImages tools;
  internal::RgbImage found, expected;
  ASSERT_TRUE(tools.read(to.read(0, 0).or_throw(), found).ok());
  ASSERT_TRUE(tools.read(from.read(0, 0).or_throw(), expected).ok());
  EXPECT_EQ(found.rgb, expected.rgb);
  EXPECT_THAT(to.provenance(), HasSubstr(R"("row_index":true)"));
  const BetonFile all = convert({.images = ImageStorage::kJpeg, .row_index = true}, "all");
  EXPECT_TRUE(internal::find_jpeg_rows(all.read(1, 0).or_throw().bytes)) << "encoded anew";
}

TEST_F(ConvertTest, TheLongerSideShrinksToTheResolution) {
  write_mixed(4);
  const BetonFile to = convert({.max_resolution = 33});
  const BetonValue shrunk = to.read(0, 0).or_throw(), same = to.read(1, 0).or_throw();
  EXPECT_EQ(shrunk.width, 33);
  EXPECT_EQ(shrunk.height, 26) << "80 * 33 / 100, cut off as FFCV does";
  EXPECT_EQ(shrunk.mode, BetonImageMode::kJpeg);
  EXPECT_EQ(same.width, 30);
}

TEST_F(ConvertTest, AShareOrTheLargeOnesBecomeJpegs) {
  write_mixed(200);
  const auto num_jpegs = [](const BetonFile& file) {
    int count = 0;
    for (uint64_t i = 0; i < file.num_samples(); ++i)
      count += file.read(i, 0).or_throw().mode == BetonImageMode::kJpeg;
    return count;
  };
  const BetonFile share =
      convert({.images = ImageStorage::kProportion, .jpeg_share = 0.25}, "share");
  EXPECT_NEAR(num_jpegs(share), 50, 25) << "4 deviations of 6.1";
  const BetonFile smart = convert({.images = ImageStorage::kSmart, .smart_bytes = 1800}, "smart");
  EXPECT_EQ(num_jpegs(smart), 100) << "30 x 20 x 3 is no more than 1800";
}

TEST_F(ConvertTest, OptionsOutOfRangeAndDamagedImagesAreNamed) {
  write_mixed(3);
  EXPECT_EQ(converted_recipe(path("from"), {.quality = 101}).status().code(),
            Code::kInvalidArgument);
  EXPECT_EQ(converted_recipe(path("none"), {}).status().code(), Code::kNotFound);
  const std::string cut = internal::encode_jpeg({}).substr(0, 500);
  auto writer =
      BetonWriter::create(path("cut"), {{"image", BetonType::kRgbImage}}, {.num_samples = 1})
          .or_throw();
  const BetonValue value{
      .mode = BetonImageMode::kJpeg, .width = 100, .height = 80, .bytes = internal::bytes_of(cut)};
  base::throw_if_error(writer.append({&value, 1}));
  base::throw_if_error(writer.finish());
  const auto recipe = converted_recipe(path("cut"), {.images = ImageStorage::kRaw}).or_throw();
  EXPECT_THAT(make_beton(recipe, path("x")).status().message(),
              HasSubstr("sample 0: field 'image': the JPEG: "));
}

TEST_F(ConvertTest, ImagesBecomeFilesInAFolderPerClass) {
  write_mixed(12);
  const auto from = BetonFile::open(path("from")).or_throw();
  ASSERT_TRUE(write_image_files(path("from"), path("photos")).or_throw().is_whole);
  EXPECT_EQ(base::read_file(path("photos/cat/00.jpg")).or_throw(), image_bytes(from, 0));
  EXPECT_THAT(base::read_file(path("photos/cat/03.png")).or_throw(), HasSubstr("PNG"));
  EXPECT_TRUE(fs::exists(path("photos/1/04.jpg"))) << "'../dog' leads out of the folder";
  EXPECT_TRUE(fs::exists(path("photos/2/11.png"))) << "no class has a name";
  EXPECT_EQ(base::list_files(path("photos"), base::Recurse::kYes).or_throw().size(), 12);
  EXPECT_EQ(write_image_files(path("from"), path("photos")).status().code(),
            Code::kInvalidArgument);
}

TEST_F(ConvertTest, AnInterruptedFolderIsContinued) {
  write_mixed(50);
  const MakeBetonOptions until_20{.num_threads = 2,
                                  .proceed = [](uint64_t done, uint64_t) { return done < 20; }};
  EXPECT_FALSE(write_image_files(path("from"), path("photos"), until_20).or_throw().is_whole);
  EXPECT_FALSE(fs::exists(path("photos")));
  const auto made = write_image_files(path("from"), path("photos")).or_throw();
  EXPECT_TRUE(made.is_whole);
  EXPECT_EQ(made.num_resumed, 20);
  EXPECT_EQ(base::list_files(path("photos"), base::Recurse::kYes).or_throw().size(), 50);
}

}  // namespace
}  // namespace hanji::data
