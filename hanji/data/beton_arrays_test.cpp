#include "hanji/data/beton_arrays.h"

#include <gmock/gmock.h>

#include "hanji/data/internal/test_files.h"
#include "hanji/data/internal/test_npy.h"
#include "hanji/test/temporary_folder.h"

namespace hanji::data {
namespace {

using internal::npy_file;
using testing::ElementsAre;
using testing::HasSubstr;

class ArrayRecipe : public testing::Test {
 protected:
  NamedArray array(const std::string& name, const std::string& dtype, const std::string& shape,
                   const std::string& elements) const {
    return {name,
            internal::write_file(folder_.path(), name + ".npy", npy_file(dtype, shape, elements))};
  }
  Result<BetonFile> make(const std::vector<NamedArray>& arrays) const {
    HANJI_ASSIGN_OR_RETURN(const auto recipe, array_recipe(arrays));
    const auto out = folder_.path() / "x.beton";
    HANJI_RETURN_IF_ERROR(make_beton(recipe, out).status());
    return BetonFile::open(out);
  }

  const test::TemporaryFolder folder_;
};

TEST_F(ArrayRecipe, VectorsAreNumbersBytesOfColoursImagesAndOthersArrays) {
  const std::string floats("\0\0\x80\x3F\0\0\0\xC0", 8);  // 1, -2
  const auto file = make({array("image", "|u1", "(2, 1, 2, 3)", "abcdefGHIJKL"),
                          array("label", ">i2", "(2,)", std::string("\x01\x02\xFF\xFE", 4)),
                          array("weight", "<f4", "(2,)", floats),
                          array("rows", "<u2", "(2, 3, 1)", "aabbccddeeff"),
                          array("half", "<f2", "(2,)", "wxyz")})
                        .or_throw();
  ASSERT_EQ(file.num_samples(), 2);
  const BetonValue image = file.read(1, 0).or_throw();
  EXPECT_EQ(image.width, 2);
  EXPECT_EQ(image.height, 1);
  EXPECT_EQ(static_cast<char>(image.bytes[0]), 'G');
  EXPECT_EQ(file.read(0, 1).or_throw().integer, 0x102);
  EXPECT_EQ(file.read(1, 1).or_throw().integer, -2);
  EXPECT_EQ(file.read(0, 2).or_throw().number, 1);
  EXPECT_EQ(file.read(1, 2).or_throw().number, -2);
  EXPECT_THAT(file.fields()[3].shape, ElementsAre(3, 1));
  EXPECT_EQ(file.fields()[3].dtype, "<u2");
  EXPECT_EQ(static_cast<char>(file.read(1, 3).or_throw().bytes[0]), 'd');
  EXPECT_EQ(file.fields()[4].type, BetonType::kNdArray);
  EXPECT_THAT(file.fields()[4].shape, ElementsAre(1));
}

TEST_F(ArrayRecipe, LengthsAndNumbersThatDoNotFitAreRejected) {
  EXPECT_THAT(
      make({array("a", "|u1", "(2,)", "ab"), array("b", "|u1", "(3,)", "abc")}).status().message(),
      HasSubstr("b.npy: 3 elements, "));
  EXPECT_EQ(make({array("a", "|u1", "()", "a")}).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(make({array("a", "|u1", "(0, 3)", "")}).status().code(), Code::kInvalidArgument);
  EXPECT_THAT(make({array("a", "<u8", "(1,)", std::string(8, '\xFF'))}).status().message(),
              HasSubstr("sample 0: a: 18446744073709551615 is above 2^63 - 1"));
  EXPECT_THAT(make({array("a", "<f4", "(2,)", "x")}).status().message(),
              HasSubstr("a.npy: 1 bytes"));
}

}  // namespace
}  // namespace hanji::data
