#include "hanji/base/text.h"

#include <gmock/gmock.h>

#include <array>

namespace hanji::base {
namespace {

TEST(EditDistance, CountsEditsAndSwaps) {
  EXPECT_EQ(edit_distance("", ""), 0u);
  EXPECT_EQ(edit_distance("", "abc"), 3u);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3u);
  EXPECT_EQ(edit_distance("steps", "setps"), 1u);
  EXPECT_EQ(edit_distance("a", "ab"), edit_distance("ab", "a"));
}

TEST(Nearest, IsTheClosestWithinTheLimit) {
  constexpr std::array<std::string_view, 3> kKeys = {"train.steps", "train.seed", "model.width"};
  EXPECT_EQ(nearest("train.step", kKeys), "train.steps");
  EXPECT_EQ(nearest("train.sede", kKeys), "train.seed");
  EXPECT_EQ(nearest("optimizer", kKeys), std::nullopt);
  EXPECT_EQ(nearest("train.st", kKeys, 3), "train.steps");
  EXPECT_EQ(nearest("x", {}), std::nullopt);
}

TEST(Utf8, LengthOfTheFirstCharacter) {
  EXPECT_EQ(utf8_length("a"), 1u);
  EXPECT_EQ(utf8_length("\xC3\xA9"), 2u);
  EXPECT_EQ(utf8_length("\xED\x95\x9C"), 3u);
  EXPECT_EQ(utf8_length("\xF0\x9F\x8C\x8D"), 4u);
}

TEST(Utf8, RefusesCutOverlongSurrogateAndTooHigh) {
  for (const char* bad : {"", "\xC3", "\xC3(", "\xA9", "\xC0\x80", "\xE0\x80\x80", "\xED\xA0\x80",
                          "\xF4\x90\x80\x80", "\xF0\x9F\x8C", "\xFF"}) {
    EXPECT_EQ(utf8_length(bad), 0u) << bad;
  }
}

TEST(Split, KeepsEmptyParts) {
  using Parts = std::vector<std::string_view>;
  EXPECT_EQ(split("a,,b,", ','), (Parts{"a", "", "b", ""}));
  EXPECT_EQ(split("", ','), Parts{""});
}

TEST(XmlEscape, EscapesWhatOpensElementsAndEntities) {
  EXPECT_EQ(xml_escape("a<b>&c"), "a&lt;b&gt;&amp;c");
}

TEST(JsonQuote, EscapesWhatJsonMust) {
  EXPECT_EQ(json_quote("a\"b\\c\n\r\t"), R"("a\"b\\c\n\r\t")");
  EXPECT_EQ(json_quote(std::string_view("\0\x1F\x7F", 3)), R"("\u0000\u001f\u007f")");
  EXPECT_EQ(json_quote("\xED\x95\x9C"), "\"\xED\x95\x9C\"");
  EXPECT_EQ(json_quote("x\xFFy\xC3"), R"("x\ufffdy\ufffd")");
}

}  // namespace
}  // namespace hanji::base
