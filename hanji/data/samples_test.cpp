#include "hanji/data/samples.h"

#include <gmock/gmock.h>

#include <cmath>
#include <numeric>
#include <vector>

namespace hanji::data {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TokenSource counting(uint16_t tokens) {
  auto ids = std::make_shared<std::vector<uint16_t>>(tokens);
  std::iota(ids->begin(), ids->end(), uint16_t{0});
  const auto bytes = std::as_bytes(std::span<const uint16_t>(*ids));
  return TokenSource(ids, bytes, TokenWidth::kUInt16);
}

TEST(TokenSamples, AreBlocksOfTPlusOneAtStrideT) {
  const auto samples = TokenSamples::create(
      counting(100), {.block = 4, .validation_fraction = 0.1, .vocabulary = 100});
  ASSERT_TRUE(samples.ok()) << samples.status().message();
  EXPECT_EQ(samples->num_train(), 22);      // (90 - 1) / 4
  EXPECT_EQ(samples->num_validation(), 2);  // (10 - 1) / 4
  std::vector<int64_t> x(4);
  std::vector<int64_t> y(4);
  ASSERT_TRUE(samples->copy_sample(Part::kTrain, 21, x.data(), y.data()).ok());
  EXPECT_THAT(x, ElementsAre(84, 85, 86, 87));
  EXPECT_THAT(y, ElementsAre(85, 86, 87, 88));
  ASSERT_TRUE(samples->copy_sample(Part::kValidation, 1, x.data(), y.data()).ok());
  EXPECT_THAT(x, ElementsAre(94, 95, 96, 97));
  EXPECT_THAT(y, ElementsAre(95, 96, 97, 98));
}

TEST(TokenSamples, MakeEveryTokenButTheFirstATargetOnce) {
  const auto samples =
      TokenSamples::create(counting(9), {.block = 4, .validation_fraction = 0, .vocabulary = 9});
  ASSERT_TRUE(samples.ok());
  ASSERT_EQ(samples->num_train(), 2);
  EXPECT_EQ(samples->num_validation(), 0);
  std::vector<int64_t> x(4);
  std::vector<int64_t> y(8);
  for (int64_t i = 0; i < 2; ++i) {
    ASSERT_TRUE(samples->copy_sample(Part::kTrain, i, x.data(), y.data() + 4 * i).ok());
  }
  EXPECT_THAT(y, ElementsAre(1, 2, 3, 4, 5, 6, 7, 8));
}

TEST(TokenSamples, RefuseATextThatIsTooShort) {
  const auto status = [](uint16_t tokens, double fraction) {
    return TokenSamples::create(counting(tokens),
                                {.block = 8, .validation_fraction = fraction, .vocabulary = 1000})
        .status();
  };
  EXPECT_THAT(status(8, 0).message(), HasSubstr("training part of the text has 8 tokens"));
  EXPECT_TRUE(status(9, 0).ok());
  EXPECT_THAT(status(80, 0.1).message(), HasSubstr("validation part of the text has 8 tokens"));
  EXPECT_TRUE(status(90, 0.1).ok());
  EXPECT_EQ(status(0, 0.1).code(), Code::kInvalidArgument);
}

TEST(TokenSamples, RefuseOptionsOutOfRange) {
  EXPECT_FALSE(TokenSamples::create(counting(90), {.block = 0, .vocabulary = 90}).ok());
  EXPECT_FALSE(TokenSamples::create(counting(90), {.block = 1, .vocabulary = 0}).ok());
  for (const double fraction : {-0.1, 1.0, std::nan("")}) {
    EXPECT_FALSE(TokenSamples::create(
                     counting(90), {.block = 1, .validation_fraction = fraction, .vocabulary = 90})
                     .ok());
  }
}

TEST(TokenSamples, NameATokenBeyondTheVocabulary) {
  const auto samples =
      TokenSamples::create(counting(100), {.block = 4, .validation_fraction = 0, .vocabulary = 88});
  ASSERT_TRUE(samples.ok());
  std::vector<int64_t> x(4);
  std::vector<int64_t> y(4);
  EXPECT_TRUE(samples->copy_sample(Part::kTrain, 20, x.data(), y.data()).ok());
  const Status status = samples->copy_sample(Part::kTrain, 21, x.data(), y.data());
  EXPECT_EQ(status.code(), Code::kCorrupt);
  EXPECT_THAT(status.message(), HasSubstr("token 88 at position 88"));
}

TEST(TokenSamples, PagesAreEightMebibytesOfTokens) {
  auto ids = std::make_shared<std::vector<uint16_t>>((20 << 20) / 2, uint16_t{1});
  const auto bytes = std::as_bytes(std::span<const uint16_t>(*ids));
  const auto samples = TokenSamples::create(
      TokenSource(ids, bytes, TokenWidth::kUInt16),
      {.block = 1 << 20, .validation_fraction = 0, .vocabulary = 2});  // of 2 MiB
  EXPECT_THAT(samples->train_pages(), ElementsAre(0, 0, 0, 0, 1, 1, 1, 1, 2));
}

TEST(TokenSamples, RefuseAnIndexOutside) {
  const auto samples =
      TokenSamples::create(counting(9), {.block = 4, .validation_fraction = 0, .vocabulary = 9});
  int64_t x[4];
  int64_t y[4];
  for (const int64_t index : {int64_t{-1}, int64_t{2}, INT64_MAX}) {
    EXPECT_EQ(samples->copy_sample(Part::kTrain, index, x, y).code(), Code::kInvalidArgument);
  }
  EXPECT_FALSE(samples->copy_sample(Part::kValidation, 0, x, y).ok());
}

}  // namespace
}  // namespace hanji::data
