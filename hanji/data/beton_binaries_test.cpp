#include "hanji/data/beton_binaries.h"

#include <gmock/gmock.h>

#include "hanji/data/beton_file.h"
#include "hanji/data/internal/test_files.h"
#include "hanji/test/temporary_folder.h"

namespace hanji::data {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

/// Labels, then planes whose pixels are plane * 80 + place % 80.
std::string cifar_record(const std::string& labels) {
  std::string record = labels;
  for (int plane = 0; plane < 3; ++plane) {
    for (int place = 0; place < 1024; ++place) {
      record += static_cast<char>(plane * 80 + place % 80);
    }
  }
  return record;
}

std::string idx_header(char dimensions, const std::vector<uint32_t>& sizes) {
  std::string header{0, 0, 8, dimensions};
  for (const uint32_t size : sizes) {
    for (int shift = 24; shift >= 0; shift -= 8) header += static_cast<char>(size >> shift & 255);
  }
  return header;
}

class BinaryImagesTest : public testing::Test {
 protected:
  fs::path file(std::string_view name, const std::string& content) const {
    return internal::write_file(folder_.path(), name, content);
  }
  Result<uint64_t> write(const std::vector<fs::path>& files) const {
    HANJI_ASSIGN_OR_RETURN(const auto recipe, binary_recipe(files));
    HANJI_ASSIGN_OR_RETURN(const auto made, make_beton(recipe, folder_.path() / "x.beton"));
    return made.num_samples;
  }
  BetonFile written() const { return BetonFile::open(folder_.path() / "x.beton").or_throw(); }
  const test::TemporaryFolder folder_;
};

TEST_F(BinaryImagesTest, LabelsThatTheSetHasNotAndTwoSetsAreRefused) {
  const auto ten = file("ten", cifar_record("\x09") + cifar_record("\x4D"));
  const auto refused = write({ten});
  EXPECT_EQ(refused.status().code(), Code::kCorrupt);
  EXPECT_THAT(refused.status().message(),
              HasSubstr("ten: record 1 has the label 77, where CIFAR-10 has 0 to 9"));
  EXPECT_THAT(write({file("coarse", cifar_record("\x14\x63"))}).status().message(),
              HasSubstr("record 0 has the label 20, where CIFAR-100 has 0 to 19"));
  EXPECT_THAT(write({file("fine", cifar_record("\x13\x64"))}).status().message(),
              HasSubstr("record 0 has the label 100, where CIFAR-100 has 0 to 99"));
  const auto both =
      write({file("c10", cifar_record("\x09")), file("c100", cifar_record("\x13\x63"))});
  EXPECT_EQ(both.status().code(), Code::kInvalidArgument);
  EXPECT_THAT(both.status().message(), HasSubstr("records of CIFAR-10 and of CIFAR-100"));
}

TEST_F(BinaryImagesTest, CifarsPlanesBecomeRowsOfColours) {
  const auto one = file("1", cifar_record("\x05") + cifar_record("\x09"));
  const auto two = file("2", cifar_record("\x07"));
  EXPECT_EQ(write({one, two}).or_throw(), 3);
  const BetonFile found = written();
  EXPECT_EQ(found.read(0, 1)->integer, 5);
  EXPECT_EQ(found.read(1, 1)->integer, 9);
  EXPECT_EQ(found.read(2, 1)->integer, 7);
  const BetonValue image = found.read(2, 0).or_throw();
  EXPECT_EQ(image.width, 32);
  EXPECT_EQ(image.height, 32);
  for (int at = 0; at < 3072; ++at) {
    ASSERT_EQ(static_cast<int>(image.bytes[at]), at % 3 * 80 + at / 3 % 80) << at;
  }
}

TEST_F(BinaryImagesTest, Cifar100HasItsFineLabel) {
  EXPECT_EQ(write({file("train", cifar_record("\x03\x63"))}).or_throw(), 1);
  EXPECT_EQ(written().read(0, 1)->integer, 99);
  EXPECT_EQ(static_cast<int>(written().read(0, 0)->bytes[1]), 80);
}

TEST_F(BinaryImagesTest, APairOfIdxFilesInEitherOrderIsGrayInThreeChannels) {
  const auto images = file("images", idx_header(3, {2, 2, 3}) + "abcdefghijkl");
  const auto labels = file("labels", idx_header(1, {2}) + "\x04\x08");
  EXPECT_EQ(write({labels, images}).or_throw(), 2);
  const BetonFile found = written();
  EXPECT_EQ(found.read(1, 1)->integer, 8);
  const BetonValue image = found.read(1, 0).or_throw();
  EXPECT_EQ(image.width, 3);
  EXPECT_EQ(image.height, 2);
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(image.bytes.data()), 6), "ggghhh");
}

TEST_F(BinaryImagesTest, PairsFollowEachOtherAndOneWithoutItsLabelsIsNamed) {
  const auto first = file("first", idx_header(3, {1, 1, 2}) + "ab");
  const auto second = file("second", idx_header(3, {2, 1, 1}) + "cd");
  const auto of_first = file("of_first", idx_header(1, {1}) + "\x04");
  const auto of_second = file("of_second", idx_header(1, {2}) + "\x05\x06");
  const Status alone = write({first}).status();
  EXPECT_EQ(alone.code(), Code::kInvalidArgument);
  EXPECT_THAT(alone.message(), HasSubstr("1 IDX files of images and 0 of labels"));
  const auto cifar = file("cifar", cifar_record("\x05"));
  EXPECT_THAT(write({first, of_first, cifar}).status().message(), HasSubstr("CIFAR's apart"));
  EXPECT_EQ(write({first, second, of_first, of_second}).or_throw(), 3);
  EXPECT_EQ(written().read(0, 1)->integer, 4);
  EXPECT_EQ(written().read(0, 0)->width, 2);
  EXPECT_EQ(written().read(2, 1)->integer, 6);
}

TEST_F(BinaryImagesTest, RejectsOtherSizesAndWritesNothing) {
  const auto images = file("images", idx_header(3, {2, 2, 3}) + "abcdefghijkl");
  const auto message = [&](const std::vector<fs::path>& files) {
    const auto written = write(files);
    EXPECT_EQ(written.status().code(), Code::kCorrupt);
    return written.status().message();
  };
  EXPECT_THAT(message({file("cut", cifar_record("\x05").substr(1))}), HasSubstr("cut: 3072 bytes"));
  EXPECT_THAT(message({images, file("few", idx_header(1, {1}) + "\x04")}),
              HasSubstr("1 labels in 9 bytes for 2 images"));
  EXPECT_THAT(message({images, file("lies", idx_header(1, {2}) + "\x04")}),
              HasSubstr("2 labels in 9 bytes"));
  EXPECT_THAT(message({file("huge", idx_header(3, {~0U, ~0U, ~0U}) + "a"),
                       file("labels", idx_header(1, {2}) + "\x04\x08")}),
              HasSubstr("huge: 17 bytes of 4294967295 images"));
  EXPECT_THAT(message({file("gz", "\x1f\x8b")}), HasSubstr("2 bytes are neither"));
  EXPECT_EQ(write({folder_.path() / "none"}).status().code(), Code::kNotFound);
  EXPECT_FALSE(fs::exists(folder_.path() / "x.beton"));
}

}  // namespace
}  // namespace hanji::data
