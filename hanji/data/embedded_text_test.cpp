#include <gmock/gmock.h>

#include <string>

#include "hanji/data/text.h"
#include "hanji/data/vocabulary.h"

namespace hanji::data {
namespace {

TEST(EmbeddedText, HoldsTheProjectsOwnSources) {
  const std::string_view text = embedded_text();
  EXPECT_GT(text.size(), 100'000u);
  EXPECT_EQ(text.find('\0'), text.npos);
  // Cut in two here, the words are found where they stand whole; files follow in byte order.
  const size_t order = text.find(std::string("class ") + "Permutation {");
  const size_t samples = text.find(std::string("class ") + "TokenSamples final");
  EXPECT_NE(order, text.npos);
  EXPECT_NE(samples, text.npos);
  EXPECT_LT(order, samples);
}

TEST(EmbeddedText, IsAVocabularyOfFewCharacters) {
  const auto vocabulary = Vocabulary::characters(embedded_text());
  ASSERT_TRUE(vocabulary.ok()) << vocabulary.status().message();
  EXPECT_LT(vocabulary->size(), 256);
}

}  // namespace
}  // namespace hanji::data
