#include "hanji/data/beton_tar.h"

#include <gmock/gmock.h>

#include "hanji/data/internal/png_writer.h"
#include "hanji/data/internal/test_files.h"
#include "hanji/data/internal/test_images.h"
#include "hanji/data/internal/test_npy.h"
#include "hanji/data/internal/test_tar.h"
#include "hanji/test/temporary_folder.h"

namespace hanji::data {
namespace {

namespace fs = std::filesystem;
using internal::tar_end;
using internal::tar_member;
using testing::HasSubstr;

std::string bytes_text(const BetonValue& value) {
  return {reinterpret_cast<const char*>(value.bytes.data()), value.bytes.size()};
}

class TarRecipe : public testing::Test {
 protected:
  fs::path shard(std::string_view name, const std::string& members) const {
    return internal::write_file(folder_.path(), name, members + tar_end());
  }
  Result<BetonFile> make(const std::vector<fs::path>& shards) const {
    const fs::path out = folder_.path() / "x.beton";
    HANJI_ASSIGN_OR_RETURN(const auto recipe, tar_recipe(shards));
    HANJI_RETURN_IF_ERROR(make_beton(recipe, out, {.num_threads = 2}).status());
    return BetonFile::open(out);
  }
  std::string message(const std::string& members) const {
    const auto file = make({shard("bad.tar", members)});
    EXPECT_EQ(file.status().code(), Code::kCorrupt);
    return file.status().message();
  }

  const test::TemporaryFolder folder_;
};

TEST_F(TarRecipe, FilesOfOneNameAreASampleAndTheirExtensionsItsFields) {
  const std::string jpeg = internal::encode_jpeg({.width = 20, .height = 10});
  const auto one = shard(
      "0.tar", tar_member("a/000.JPEG", jpeg) + tar_member("a/000.cls", "7\n") +
                   tar_member("a/000.json", R"({"x":1})") +
                   tar_member("a/000.emb.npy", internal::npy_file("<f4", "(2,)", "abcdefgh")) +
                   tar_member("a/000.txt", "words"));
  const auto two = shard(
      "1.tar", tar_member("__meta__/x.txt", "no sample") + tar_member("README", "no sample") +
                   tar_member("b/000.cls", "-1") + tar_member("b/000.jpg", jpeg) +
                   tar_member("b/000.emb.npy", internal::npy_file("<f4", "(2,)", "ABCDEFGH")) +
                   tar_member("b/000.txt", "") + tar_member("b/000.json", "[2]"));
  const auto file = make({one, two}).or_throw();
  ASSERT_EQ(file.num_samples(), 2);
  std::string fields;
  for (const BetonField& field : file.fields()) {
    fields += field.name + ":" + std::string(name_of(field.type)) + " ";
  }
  EXPECT_EQ(fields, "jpg:rgb_image cls:int json:json emb.npy:ndarray txt:bytes ");
  EXPECT_EQ(bytes_text(file.read(0, 0).or_throw()), jpeg);
  EXPECT_EQ(file.read(0, 0).or_throw().width, 20);
  EXPECT_EQ(file.read(0, 1).or_throw().integer, 7);
  EXPECT_EQ(file.read(1, 1).or_throw().integer, -1);
  EXPECT_EQ(bytes_text(file.read(1, 2).or_throw()), "[2]");
  EXPECT_EQ(bytes_text(file.read(1, 3).or_throw()), "ABCDEFGH");
  EXPECT_EQ(bytes_text(file.read(0, 4).or_throw()), "words");
  EXPECT_EQ(file.verify([](const BetonMistake&) {}), 0);
}

TEST_F(TarRecipe, PngsAreImagesAndMasksKeepTheirBytes) {
  const auto png = [](int64_t width, int64_t height) {
    return internal::encode_png(internal::test_pixels(width, height), static_cast<uint32_t>(width),
                                static_cast<uint32_t>(height))
        .or_throw();
  };
  const std::string jpeg = internal::encode_jpeg({.width = 20, .height = 10});
  const auto file =
      make(
          {shard("0.tar", tar_member("0.png", png(5, 3)) + tar_member("0.seg.png", png(2, 2)) +
                              tar_member("0.left.jpg", png(4, 1)) + tar_member("1.left.jpg", jpeg) +
                              tar_member("1.png", png(1, 7)) + tar_member("1.seg.png", "any"))})
          .or_throw();
  const auto rows_of = [&](uint64_t sample, size_t field) {
    const BetonValue value = file.read(sample, field).or_throw();
    const auto* bytes = reinterpret_cast<const uint8_t*>(value.bytes.data());
    return std::vector<uint8_t>(bytes, bytes + value.bytes.size());
  };
  EXPECT_EQ(rows_of(0, 0), internal::test_pixels(5, 3));
  EXPECT_EQ(rows_of(0, 2), internal::test_pixels(4, 1));
  EXPECT_EQ(rows_of(1, 0), internal::test_pixels(1, 7));
  EXPECT_EQ(file.read(1, 0).or_throw().height, 7);
  EXPECT_EQ(file.fields()[1].type, BetonType::kBytes);
  EXPECT_EQ(bytes_text(file.read(0, 1).or_throw()), png(2, 2));
  EXPECT_EQ(bytes_text(file.read(1, 2).or_throw()), jpeg);
  EXPECT_EQ(file.verify([](const BetonMistake&) {}), 0);
}

TEST_F(TarRecipe, ASampleWithOtherFieldsThanTheFirstIsNamed) {
  EXPECT_THAT(
      message(tar_member("a.cls", "1") + tar_member("a.txt", "x") + tar_member("b.cls", "2")),
      HasSubstr("sample 1: " + (folder_.path() / "bad.tar").native() +
                ": b: no file .txt, which the first sample has"));
  EXPECT_THAT(
      message(tar_member("a.cls", "1") + tar_member("b.cls", "2") + tar_member("b.txt", "x")),
      HasSubstr("b: a file .txt, which the first sample has not"));
  EXPECT_THAT(message(tar_member("a.cls", "1") + tar_member("a.CLS", "2")),
              HasSubstr("a: two files .cls in one sample"));
}

TEST_F(TarRecipe, ValuesThatAreNotTheirFieldsAreNamed) {
  EXPECT_THAT(message(tar_member("a.cls", "one")), HasSubstr("a.cls: 3 bytes are no number"));
  EXPECT_THAT(message(tar_member("a.json", "{")), HasSubstr("a.json: "));
  EXPECT_THAT(message(tar_member("a.jpg", "\x89PNG\r\n\x1a\n")), HasSubstr("a.jpg: "));
  EXPECT_THAT(message(tar_member("a.npy", internal::npy_file("|u1", "(2,)", "ab")) +
                      tar_member("b.npy", internal::npy_file("|u1", "(3,)", "abc"))),
              HasSubstr("b.npy: an array of another type or shape"));
}

TEST_F(TarRecipe, FilesApartFromTheirSampleAreNamedWithTheWayToSort) {
  const std::string one = message(tar_member("a.cls", "1") + tar_member("b.cls", "2") +
                                  tar_member("a.txt", "x") + tar_member("b.txt", "y"));
  EXPECT_THAT(one, HasSubstr("bad.tar: a.txt comes behind the files of b"));
  EXPECT_THAT(one, HasSubstr("tar --sort=name"));
  const std::string again = tar_member("a.cls", "1") + tar_member("b.cls", "2");
  EXPECT_EQ(make({shard("again.tar", again + again)}).or_throw().num_samples(), 4)
      << "a key may come again with a whole sample";
}

TEST_F(TarRecipe, MetadataAndFilesOfNoSampleAreLeftOutAndSaid) {
  const auto path = shard("0.tar", tar_member("._1.jpg", "fork") + tar_member("a/.DS_Store", "") +
                                       tar_member("__MACOSX/1.cls", "0") +
                                       tar_member("README", "none") + tar_member("1.cls", "5"));
  const auto recipe = tar_recipe(std::vector{path}).or_throw();
  EXPECT_EQ(recipe.num_samples, 1);
  EXPECT_THAT(
      recipe.notes,
      testing::ElementsAre(
          "left out 3 names (hidden, or added by a system), such as " + path.native() + ": ._1.jpg",
          testing::AllOf(HasSubstr("left out 1 file (in no sample: its files are named "
                                   "KEY.EXTENSION"),
                         HasSubstr("README"))));
}

TEST_F(TarRecipe, AKeyEndsAtTheFirstDotWhichIsSaidWhereItCutsANumber) {
  EXPECT_THAT(
      message(tar_member("22.00.txt", "x") + tar_member("23.50.txt", "y")),
      HasSubstr("23: a file .50.txt, which the first sample has not; the key of a sample is "
                "its files' name up to the first dot, and what is behind it the field"));
  const auto path = shard("0.tar", tar_member("22.00.txt", "x") + tar_member("22.50.txt", "y"));
  EXPECT_THAT(tar_recipe(std::vector{path}).or_throw().notes,
              testing::ElementsAre(HasSubstr("2 names with more than one dot, such as " +
                                             path.native() + ": 22.00.txt: the key")));
  EXPECT_TRUE(tar_recipe(std::vector{shard("1.tar", tar_member("v1.seg.txt", "x"))})
                  .or_throw()
                  .notes.empty());
}

TEST_F(TarRecipe, ASampleThatNoPageHoldsIsNamedWithItsFieldSizeAndTheLimit) {
  constexpr uint64_t kBytes = uint64_t{3} << 30;
  std::string header = tar_member("b.mp4", "").substr(0, 512);
  header.replace(124, 11, fmt::format("{:011o}", kBytes));
  internal::seal_tar_header(header);
  const std::string small = tar_member("a.cls", "1") + tar_member("a.mp4", "x");
  const auto path =
      internal::write_file(folder_.path(), "big.tar", small + tar_member("b.cls", "1") + header);
  fs::resize_file(path, fs::file_size(path) + kBytes + 1024);  // of zeros, which take no place
  EXPECT_THAT(make({path}).status().message(),
              HasSubstr("big.tar: b, field mp4: a sample of 3.22 GB, but a sample of a .beton file "
                        "has at most 2.15 GB; make it smaller, or leave it out"));
}

TEST_F(TarRecipe, ADamagedShardIsNamed) {
  const auto cut = internal::write_file(folder_.path(), "cut.tar", tar_member("a.cls", "1"));
  const Status status = tar_recipe(std::vector{cut}).status();
  EXPECT_EQ(status.code(), Code::kCorrupt);
  EXPECT_THAT(status.message(), HasSubstr("cut.tar: byte 1024 of the archive ends without"));
  const Status none =
      tar_recipe(std::vector{shard("none.tar", tar_member("._1.jpg", ""))}).status();
  EXPECT_EQ(none.code(), Code::kInvalidArgument);
  EXPECT_THAT(none.message(), HasSubstr("such as 000.jpg: left out 1 name (hidden"));
  EXPECT_EQ(tar_recipe(std::vector{folder_.path() / "no"}).status().code(), Code::kNotFound);
}

}  // namespace
}  // namespace hanji::data
