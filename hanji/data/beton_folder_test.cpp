#include "hanji/data/beton_folder.h"

#include <gmock/gmock.h>
#include <sys/stat.h>

#include "hanji/base/file.h"
#include "hanji/data/beton_file.h"
#include "hanji/data/internal/png_writer.h"
#include "hanji/data/internal/test_files.h"
#include "hanji/data/internal/test_images.h"
#include "hanji/test/temporary_folder.h"

namespace hanji::data {
namespace {

using internal::write_file;
using testing::ElementsAre;
using testing::HasSubstr;

/// A stream that is a JPEG up to its frame header: 2 x 1 pixels, and a text behind it.
std::string photo(const std::string& text) {
  return std::string("\xFF\xD8\xFF\xC0\x00\x08\x08\x00\x01\x00\x02\x03", 12) + text;
}

class ImageFolder : public testing::Test {
 protected:
  void add(const std::string& name, const std::string& content) const {
    write_file(folder_.path() / "photos", name, content);
  }
  Status write() const {
    const auto recipe = folder_recipe(folder_.path() / "photos");
    return recipe.ok() ? make_beton(*recipe, out()).status() : recipe.status();
  }
  std::filesystem::path out() const { return folder_.path() / "x.beton"; }

  test::TemporaryFolder folder_;
};

TEST_F(ImageFolder, LinksToNothingAndPipesAreListedAndNotLeftOut) {
  namespace fs = std::filesystem;
  const fs::path photos = folder_.path() / "photos";
  add("ant/1.jpg", photo("first"));
  add("cat/2.jpg", photo("second"));
  fs::create_symlink("nowhere", photos / "bee");
  fs::create_symlink("nowhere", photos / "cat" / "3.jpg");
  ASSERT_EQ(::mkfifo((photos / "cat" / "4.jpg").c_str(), 0600), 0);
  fs::create_directory_symlink(photos / "ant", photos / "cat" / "more");
  const Status status = write();
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_THAT(status.message(),
              HasSubstr("4 names in the folder that are neither a file nor a folder"));
  for (const char* name : {"photos/bee", "cat/3.jpg", "cat/4.jpg", "cat/more"}) {
    EXPECT_THAT(status.message(), HasSubstr(name));
  }
  EXPECT_FALSE(fs::exists(out()));
}

TEST_F(ImageFolder, KeepsTheFilesBytesAndNumbersTheFoldersByName) {
  add("cat/2.jpg", photo("second"));
  add("cat/1.jpg", photo("first"));
  add("cat-big/deep/3.JPG", photo("third"));
  add("ant/4.jpeg", photo("fourth"));
  ASSERT_TRUE(write().ok());
  const auto file = BetonFile::open(out()).or_throw();
  EXPECT_EQ(file.provenance(), R"({"images":"folder","classes":["ant","cat","cat-big"]})");
  std::vector<std::string> found;
  for (uint64_t i = 0; i < 4; ++i) {
    const auto image = file.read(i, 0).or_throw();
    EXPECT_EQ(image.mode, BetonImageMode::kJpeg);
    EXPECT_EQ(image.width, 2);
    EXPECT_EQ(image.height, 1);
    const std::string text(reinterpret_cast<const char*>(image.bytes.data()), image.bytes.size());
    found.push_back(text.substr(12) + " " + std::to_string(file.read(i, 1).or_throw().integer));
  }
  EXPECT_THAT(found, ElementsAre("fourth 0", "third 2", "first 1", "second 1"));
}

TEST_F(ImageFolder, NamesEveryFileThatIsNoJpegAndWritesNothing) {
  add("a/good.jpg", photo(""));
  add("a/notes.txt", "notes");
  add("b/cut.jpg", "\xFF\xD8");
  const Status status = write();
  EXPECT_EQ(status.code(), Code::kCorrupt);
  EXPECT_THAT(status.message(), HasSubstr("2 of 3 samples"));
  EXPECT_THAT(status.message(), HasSubstr("a/notes.txt: no JPEG"));
  EXPECT_THAT(status.message(), HasSubstr("b/cut.jpg: no frame header"));
  EXPECT_EQ(base::list_files(folder_.path()).or_throw().size(), 0);
}

TEST_F(ImageFolder, TheFirstBytesOfAnImageSayWhatItIsAndNotItsName) {
  const std::vector<uint8_t> rgb = internal::test_pixels(5, 3);
  const std::string png = internal::encode_png(rgb, 5, 3).or_throw();
  add("a/1.jpg", png);
  add("a/2.png", photo(""));
  add("a/3.png", png);
  ASSERT_TRUE(write().ok());
  const auto file = BetonFile::open(out()).or_throw();
  for (const uint64_t sample : {0, 2}) {
    const auto image = file.read(sample, 0).or_throw();
    EXPECT_EQ(image.mode, BetonImageMode::kRaw);
    EXPECT_EQ(image.width, 5);
    EXPECT_TRUE(std::ranges::equal(image.bytes, std::as_bytes(std::span(rgb))));
  }
  EXPECT_EQ(file.read(1, 0).or_throw().mode, BetonImageMode::kJpeg);
}

TEST_F(ImageFolder, APngThatNoPageHoldsUnderTheNameOfAJpegIsNamedWithAWayOut) {
  const std::vector<uint8_t> rgb(size_t{3} * 3000 * 1000);
  const std::string png = internal::encode_png(rgb, 3000, 1000).or_throw();
  add("a/1.jpg", png);
  EXPECT_THAT(write().message(), HasSubstr("a/1.jpg: a PNG of 9000000 bytes of RGB under the name "
                                           "of a JPEG; name it .png"));
  add("a/2.png", png);
  EXPECT_TRUE(write().ok()) << "pages are as large as the other one needs";
}

TEST_F(ImageFolder, ClassesWithoutAFileAreRejectedByName) {
  add("cat/1.jpg", photo(""));
  for (const char* empty : {"bird", "dog/deep"}) {
    ASSERT_TRUE(base::make_directories(folder_.path() / "photos" / empty).ok());
  }
  const Status status = write();
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("photos: no file in the folders of classes bird, "
                                          "dog; remove them, or add images"));
}

TEST_F(ImageFolder, HiddenFoldersAndFilesAreNeitherClassesNorSamplesAndAreSaid) {
  add("cat/1.jpg", photo("cat"));
  add("dog/2.jpg", photo("dog"));
  add(".ipynb_checkpoints/1-checkpoint.jpg", photo(""));
  add("__MACOSX/cat/1.jpg", photo(""));
  add("cat/.ipynb_checkpoints/1-checkpoint.jpg", photo(""));
  add("cat/._1.jpg", "resource fork");
  add("dog/Thumbs.db", "thumbs");
  add(".DS_Store", "a file in no class");
  const auto recipe = folder_recipe(folder_.path() / "photos").or_throw();
  EXPECT_EQ(recipe.num_samples, 2);
  EXPECT_EQ(recipe.provenance, R"({"images":"folder","classes":["cat","dog"]})");
  EXPECT_THAT(recipe.notes, ElementsAre(testing::AllOf(
                                HasSubstr("left out 6 names (hidden, or added by a system)"),
                                HasSubstr("photos/.DS_Store"))));
  ASSERT_TRUE(write().ok());
  EXPECT_EQ(BetonFile::open(out()).or_throw().read(1, 1).or_throw().integer, 1);
}

TEST_F(ImageFolder, AFolderOfWhichAllIsLeftOutSaysSo) {
  add(".cat/1.jpg", photo(""));
  EXPECT_THAT(write().message(), testing::AllOf(HasSubstr("photos: no file (left out 1 name"),
                                                HasSubstr("photos/.cat)")));
  add("dog/._1.jpg", photo(""));
  EXPECT_THAT(write().message(),
              HasSubstr("photos: no file in the folder of class dog (left out 2 names"));
}

TEST_F(ImageFolder, AnImageThatNoPageHoldsIsNamedWithItsSizeAndTheLimit) {
  add("cat/1.jpg", photo(""));
  std::filesystem::resize_file(folder_.path() / "photos/cat/1.jpg", uint64_t{3} << 30);
  EXPECT_THAT(write().message(),
              HasSubstr("photos/cat/1.jpg, field image: a sample of 3.22 GB, but a sample of a "
                        ".beton file has at most 2.15 GB"));
}

TEST_F(ImageFolder, AClassMayBeALinkToAFolder) {
  write_file(folder_.path() / "elsewhere", "1.jpg", photo("linked"));
  add("b/2.jpg", photo(""));
  std::filesystem::create_directory_symlink(folder_.path() / "elsewhere",
                                            folder_.path() / "photos" / "a");
  ASSERT_TRUE(write().ok());
  const auto file = BetonFile::open(out()).or_throw();
  EXPECT_EQ(file.num_samples(), 2);
  EXPECT_EQ(file.read(0, 1).or_throw().integer, 0);
}

TEST_F(ImageFolder, RejectsFilesWithoutAClass) {
  add("1.jpg", photo(""));
  EXPECT_THAT(write().message(), HasSubstr("1.jpg: a file in no class"));
  EXPECT_EQ(folder_recipe(folder_.path() / "none").status().code(), Code::kNotFound);
}

}  // namespace
}  // namespace hanji::data
