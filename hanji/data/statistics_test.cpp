#include "hanji/data/statistics.h"

#include <gmock/gmock.h>

#include <cmath>

#include "hanji/data/vocabulary.h"

namespace hanji::data {
namespace {

TokenSamples samples_of(const std::string& text, double fraction, int64_t vocabulary = 256) {
  return TokenSamples::create(
             Vocabulary::bytes().encode(text).or_throw(),
             {.block = 1, .validation_fraction = fraction, .vocabulary = vocabulary})
      .or_throw();
}

TEST(BigramEntropy, HasItsClosedFormOnASmallText) {
  // Pairs of "abacabad" with no validation part: ab 2, ac 1, ad 1 (of 4 after a); ba 2, ca 1.
  // H = (4 * (1/2 ln 2 + 1/2 ln 4) + 0) / 7.
  const auto entropy = bigram_entropy(samples_of("abacabad", 0), 256);
  ASSERT_TRUE(entropy.ok()) << entropy.status().message();
  EXPECT_NEAR(entropy->text_nats, 4 * 1.5 * std::log(2.0) / 7, 1e-12);
  EXPECT_EQ(entropy->validation_nats, 0);
}

TEST(BigramEntropy, JudgesTrainingCountsOnTheValidationPart) {
  // Trains on "aab" (aa 1, ab 1), is asked for the one pair of "ab": with V = 256,
  // P = (1 + 2 * (1 + 1)/(2 + 256)) / (2 + 2).
  const auto entropy = bigram_entropy(samples_of("aabab", 0.4), 256);
  ASSERT_TRUE(entropy.ok());
  EXPECT_NEAR(entropy->validation_nats, -std::log((1 + 2 * 2.0 / 258) / 4), 1e-12);
  // The whole text "aabab": aa 1, ab 2, ba 1 (the pair across the border too).
  EXPECT_NEAR(entropy->text_nats, (std::log(3.0) + 2 * std::log(1.5)) / 4, 1e-12);
}

TEST(BigramEntropy, IsZeroForATextThatPairsForetell) {
  std::string text;
  for (int i = 0; i < 5000; ++i) text += "xyz";
  const auto entropy = bigram_entropy(samples_of(text, 0.1), 256);
  ASSERT_TRUE(entropy.ok());
  EXPECT_NEAR(entropy->text_nats, 0, 1e-12);
  EXPECT_LT(entropy->validation_nats, 1e-3);
}

TEST(BigramEntropy, RefusesVocabulariesBeyondATable) {
  EXPECT_EQ(bigram_entropy(samples_of("abab", 0), 50257).status().code(), Code::kUnsupported);
}

TEST(BigramEntropy, RefusesATokenBeyondTheVocabulary) {
  EXPECT_EQ(bigram_entropy(samples_of("abab", 0), 98).status().code(), Code::kCorrupt);
}

}  // namespace
}  // namespace hanji::data
