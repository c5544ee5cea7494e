#include "hanji/data/vocabulary.h"

#include <gmock/gmock.h>

namespace hanji::data {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<int64_t> ids(const Result<TokenSource>& source) {
  EXPECT_TRUE(source.ok()) << source.status().message();
  std::vector<int64_t> out(static_cast<size_t>(source->num_tokens()));
  EXPECT_TRUE(source->copy_tokens(0, source->num_tokens(), out.data()).ok());
  return out;
}

// "a", e acute (2 bytes), the Hangul syllable han (3), an emoji (4).
constexpr char kFourLengths[] = "a\xC3\xA9\xED\x95\x9C\xF0\x9F\x98\x80";

TEST(Vocabulary, OrdersCharactersByCodePoint) {
  const auto vocabulary = Vocabulary::characters("cabbage");
  ASSERT_TRUE(vocabulary.ok());
  EXPECT_EQ(vocabulary->size(), 5);
  EXPECT_THAT(ids(vocabulary->encode("abcg")), ElementsAre(0, 1, 2, 4));
}

TEST(Vocabulary, RoundTripsCodePointsOfEveryLength) {
  const auto vocabulary = Vocabulary::characters(kFourLengths);
  ASSERT_TRUE(vocabulary.ok()) << vocabulary.status().message();
  EXPECT_EQ(vocabulary->size(), 4);
  EXPECT_EQ(vocabulary->decode(ids(vocabulary->encode(kFourLengths))), kFourLengths);
}

TEST(Vocabulary, WidensIdsWithItsSize) {
  std::string text;
  for (int lead = 0xC4; lead < 0xDF; ++lead) {
    for (int next = 0x80; next < 0xC0; ++next) {
      text += static_cast<char>(lead);
      text += static_cast<char>(next);
    }
  }
  const auto vocabulary = Vocabulary::characters(text);
  ASSERT_TRUE(vocabulary.ok());
  ASSERT_GT(vocabulary->size(), 256);
  const auto source = vocabulary->encode(text);
  ASSERT_TRUE(source.ok());
  EXPECT_EQ(source->width(), TokenWidth::kUInt16);
  EXPECT_EQ(vocabulary->decode(ids(source)), text);
}

TEST(Vocabulary, BytesTakeAnything) {
  const Vocabulary vocabulary = Vocabulary::bytes();
  EXPECT_EQ(vocabulary.size(), 256);
  EXPECT_THAT(ids(vocabulary.encode("\xFF\x01")), ElementsAre(255, 1));
  EXPECT_EQ(vocabulary.decode(std::vector<int64_t>{255, 1}), "\xFF\x01");
}

class NotUtf8 : public testing::TestWithParam<std::string> {};

TEST_P(NotUtf8, IsRefusedWithItsOffset) {
  const Status status = Vocabulary::characters("ok" + GetParam()).status();
  EXPECT_EQ(status.code(), Code::kCorrupt);
  EXPECT_THAT(status.message(), HasSubstr("byte 2"));
}

// A lone tail, an overlong slash, a surrogate, above U+10FFFF, cut after one and after three bytes.
INSTANTIATE_TEST_SUITE_P(Forms, NotUtf8,
                         testing::Values("\x80", "\xC0\xAF", "\xE0\x80\xAF", "\xED\xA0\x80",
                                         "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\xC3",
                                         "\xF0\x9F\x98", "\xC3("));

TEST(Vocabulary, NamesTheCharacterItDoesNotHold) {
  const auto vocabulary = Vocabulary::characters("abc");
  const Status status = vocabulary->encode("ab\xC3\xA9").status();
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("U+00E9"));
  EXPECT_THAT(status.message(), HasSubstr("byte 2"));
}

TEST(Vocabulary, DecodesAnIdOutsideAsReplacement) {
  EXPECT_EQ(Vocabulary::characters("ab")->decode(std::vector<int64_t>{0, 7, -1}),
            "a\xEF\xBF\xBD\xEF\xBF\xBD");
}

TEST(Vocabulary, ReturnsFromJson) {
  for (const Vocabulary& vocabulary :
       {Vocabulary::bytes(), *Vocabulary::characters(std::string(kFourLengths) + "\n\"\\")}) {
    const auto back = Vocabulary::from_json(vocabulary.to_json());
    ASSERT_TRUE(back.ok()) << back.status().message();
    EXPECT_EQ(*back, vocabulary);
  }
}

TEST(Vocabulary, RefusesForeignJson) {
  for (const char* json :
       {"", "[]", "{}", R"({"kind":"word"})", R"({"kind":"char"})",
        R"({"kind":"char","characters":7})", R"({"kind":3})", R"({"kind":"char","characters":""})",
        R"({"kind":"char","characters":"ba"})", R"({"kind":"char","characters":"aa"})"}) {
    EXPECT_EQ(Vocabulary::from_json(json).status().code(), Code::kCorrupt) << json;
  }
}

}  // namespace
}  // namespace hanji::data
