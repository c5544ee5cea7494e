#include "hanji/data/beton_tokens.h"

#include <gmock/gmock.h>

#include <numeric>

#include "hanji/test/temporary_folder.h"

namespace hanji::data {
namespace {

TokenSource counting_tokens(int64_t count) {
  const auto ids = std::make_shared<std::vector<uint16_t>>(count);
  std::iota(ids->begin(), ids->end(), uint16_t{1000});
  return {ids, std::as_bytes(std::span(*ids)), TokenWidth::kUInt16};
}

TEST(TokenRecipe, SamplesOverlapByOneTokenAndKeepTheirWidth) {
  const test::TemporaryFolder folder;
  const auto recipe = token_recipe(counting_tokens(21), 4, R"({"samples":"tokens"})").or_throw();
  ASSERT_TRUE(make_beton(recipe, folder.path() / "x").ok());
  const auto file = BetonFile::open(folder.path() / "x").or_throw();
  EXPECT_EQ(file.num_samples(), 5);
  EXPECT_EQ(file.fields()[0].dtype, "<u2");
  for (uint64_t i = 0; i < 5; ++i) {
    const auto bytes = file.read(i, 0).or_throw().bytes;
    ASSERT_EQ(bytes.size(), 10);
    for (size_t t = 0; t < 5; ++t) {
      uint16_t id = 0;
      std::memcpy(&id, bytes.data() + 2 * t, 2);
      EXPECT_EQ(id, 1000 + 4 * i + t);
    }
  }
}

TEST(TokenRecipe, ALengthWithoutASampleIsRejected) {
  EXPECT_TRUE(token_recipe(counting_tokens(5), 4, "{}").ok());
  for (const int64_t length : {0, 5, 6, -1}) {
    EXPECT_EQ(token_recipe(counting_tokens(5), length, "{}").status().code(),
              Code::kInvalidArgument);
  }
}

}  // namespace
}  // namespace hanji::data
