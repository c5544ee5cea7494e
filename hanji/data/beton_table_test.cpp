#include "hanji/data/beton_table.h"

#include <gmock/gmock.h>
#include <sys/stat.h>

#include "hanji/data/internal/png_writer.h"
#include "hanji/data/internal/test_files.h"
#include "hanji/data/internal/test_images.h"
#include "hanji/test/temporary_folder.h"

namespace hanji::data {
namespace {

using testing::HasSubstr;
using testing::Not;

class TableRecipe : public testing::Test {
 protected:
  Result<BetonFile> make(const std::string& text, const TableOptions& options = {}) const {
    const auto table = internal::write_file(folder_.path(), "t.csv", text);
    const auto out = folder_.path() / "x.beton";
    std::filesystem::remove(out);
    HANJI_ASSIGN_OR_RETURN(const auto recipe, table_recipe(table, options));
    HANJI_RETURN_IF_ERROR(make_beton(recipe, out).status());
    return BetonFile::open(out);
  }

  const test::TemporaryFolder folder_;
};

TEST_F(TableRecipe, ColumnsOfNumbersAreNumbersAndOthersText) {
  const auto file = make("id,weight,note\n1,2,one\n-3,0.25,\"two, too\"\n").or_throw();
  ASSERT_EQ(file.num_samples(), 2);
  EXPECT_EQ(file.fields()[0].type, BetonType::kInt);
  EXPECT_EQ(file.fields()[1].type, BetonType::kFloat);
  EXPECT_EQ(file.fields()[2].type, BetonType::kBytes);
  EXPECT_EQ(file.read(1, 0).or_throw().integer, -3);
  EXPECT_EQ(file.read(0, 1).or_throw().number, 2);
  EXPECT_EQ(file.read(1, 1).or_throw().number, 0.25);
  EXPECT_EQ(file.read(1, 2).or_throw().bytes.size(), 8);
}

TEST_F(TableRecipe, AByteOrderMarkIsLeftOutAndUtf16Refused) {
  const auto file = make("\xEF\xBB\xBFid\n7\n").or_throw();
  EXPECT_EQ(file.fields()[0].name, "id");
  const auto table = table_recipe(folder_.path() / "t.csv").or_throw();
  EXPECT_THAT(table.notes, testing::ElementsAre(HasSubstr("left out the byte order mark")));
  EXPECT_THAT(make("\xFF\xFEi").status().message(), HasSubstr("iconv -f UTF-16 -t UTF-8"));
}

TEST_F(TableRecipe, IntegersBeyondInt64StayAsTheyAreWritten) {
  const auto file = make("id\n12345678901234567890\n12345678901234567891\n").or_throw();
  EXPECT_EQ(file.fields()[0].type, BetonType::kBytes);
  EXPECT_EQ(file.read(1, 0).or_throw().bytes.size(), 20);
}

TEST_F(TableRecipe, AColumnOfPathsIsImagesAndOneOfNamesClasses) {
  const std::string jpeg = internal::encode_jpeg({.width = 30, .height = 20});
  internal::write_file(folder_.path() / "photos", "1.jpg", jpeg);
  const TableOptions options{.image_column = "path", .class_column = "kind"};
  const auto file =
      make("path,kind\nphotos/1.jpg,dog\nphotos/1.jpg,cat\nphotos/1.jpg,dog\n", options).or_throw();
  EXPECT_EQ(file.read(2, 0).or_throw().width, 30);
  EXPECT_EQ(file.read(2, 0).or_throw().bytes.size(), jpeg.size());
  EXPECT_EQ(file.read(0, 1).or_throw().integer, 1);
  EXPECT_EQ(file.read(1, 1).or_throw().integer, 0);
  EXPECT_EQ(file.provenance(), R"({"images":"table","classes":["cat","dog"]})");
}

TEST_F(TableRecipe, PngsBecomeRowsOfRgb) {
  const std::vector<uint8_t> rgb = internal::test_pixels(6, 4);
  internal::write_file(folder_.path(), "1.png", internal::encode_png(rgb, 6, 4).or_throw());
  const auto file = make("note,path\nfirst,1.png\n", {.image_column = "path"}).or_throw();
  const BetonValue image = file.read(0, 1).or_throw();
  EXPECT_EQ(image.mode, BetonImageMode::kRaw);
  EXPECT_EQ(image.height, 4);
  EXPECT_TRUE(std::ranges::equal(image.bytes, std::as_bytes(std::span(rgb))));
  EXPECT_EQ(file.read(0, 0).or_throw().bytes.size(), 5);
}

TEST_F(TableRecipe, AColumnIsNotOfImagesAndOfClasses) {
  EXPECT_THAT(make("a,b\n1,2\n", {.image_column = "a", .class_column = "a"}).status().message(),
              HasSubstr("t.csv: column 'a' cannot have images and classes"));
}

TEST_F(TableRecipe, PathsOfNoFileAreListedWithLineAndColumnAndNothingIsLeft) {
  namespace fs = std::filesystem;
  ASSERT_EQ(::mkfifo((folder_.path() / "pipe").c_str(), 0600), 0);
  const Status status =
      make("kind,path\n1,\n2,.\n3,pipe\n4,none.jpg\n", {.image_column = "path"}).status();
  EXPECT_EQ(status.code(), Code::kCorrupt);
  EXPECT_THAT(status.message(), HasSubstr("4 of 4 samples cannot be read"));
  for (const char* line : {"line 2, column 'path': ", "line 3, column 'path': ",
                           "pipe: no regular file", "line 5, column 'path': "}) {
    EXPECT_THAT(status.message(), HasSubstr(line));
  }
  for (const auto& one : fs::directory_iterator(folder_.path())) {
    EXPECT_THAT(one.path().filename().native(), Not(HasSubstr(".part")));
    EXPECT_THAT(one.path().filename().native(), Not(HasSubstr(".journal")));
  }
}

TEST_F(TableRecipe, MistakesAreNamed) {
  const auto message = [&](const std::string& text, const TableOptions& options = {}) {
    const auto file = make(text, options);
    EXPECT_FALSE(file.ok());
    return file.status().message();
  };
  EXPECT_THAT(message("a,b\n1,2\n,3\n"), HasSubstr("t.csv: line 3: no value in column 'a'"));
  EXPECT_THAT(message("a,b\n1\n"), HasSubstr("t.csv: line 2: 1 values for 2 columns"));
  EXPECT_THAT(message("a,b\n1,2\n", {.image_column = "c"}),
              HasSubstr("no column 'c'; the columns are a, b"));
  EXPECT_THAT(message("a\nno.jpg\n", {.image_column = "a"}), HasSubstr("1 of 1 samples"));
  EXPECT_THAT(message("a\nt.csv\n", {.image_column = "a"}), HasSubstr("t.csv: no JPEG"));
  EXPECT_THAT(message("a_name_of_seventeen\n1\n"), HasSubstr("use 1 to 16"));
}

}  // namespace
}  // namespace hanji::data
