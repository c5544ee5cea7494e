#include "hanji/base/text.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <random>
#include <string>

namespace hanji::base {
namespace {

/// The fewest edits, by recursion over both words' ends.
size_t by_recursion(std::string_view a, std::string_view b) {
  if (a.empty() || b.empty()) return a.size() + b.size();
  const auto cut = [](std::string_view word, size_t n) { return word.substr(0, word.size() - n); };
  if (a.back() == b.back()) return by_recursion(cut(a, 1), cut(b, 1));
  size_t fewest = std::min(
      {by_recursion(cut(a, 1), b), by_recursion(a, cut(b, 1)), by_recursion(cut(a, 1), cut(b, 1))});
  const bool swapped =
      a.size() > 1 && b.size() > 1 && a.ends_with(std::string{b[b.size() - 1], b[b.size() - 2]});
  if (swapped) fewest = std::min(fewest, by_recursion(cut(a, 2), cut(b, 2)));
  return fewest + 1;
}

/// The fewest edits that nearest() finds between two words, by raising its limit.
size_t edits(std::string_view a, std::string_view b) {
  size_t limit = 0;
  while (!nearest(a, std::array{b}, limit)) ++limit;
  return limit;
}

TEST(Nearest, CountsEditsAndSwaps) {
  EXPECT_EQ(edits("", ""), 0u);
  EXPECT_EQ(edits("", "abc"), 3u);
  EXPECT_EQ(edits("abc", ""), 3u);
  EXPECT_EQ(edits("kitten", "sitting"), 3u);
  EXPECT_EQ(edits("steps", "setps"), 1u);
  EXPECT_EQ(edits("abcdefgh", "badcfehg"), 4u);
  EXPECT_EQ(edits("xxabcdef", "abcdefyy"), 4u);
  EXPECT_EQ(edits("a", "ab"), edits("ab", "a"));
}

TEST(Nearest, CountsAsARecursionDoes) {
  std::mt19937 draw(1);
  const auto word = [&draw] {
    std::string drawn(draw() % 8, 'a');
    for (char& c : drawn) c = static_cast<char>('a' + draw() % 3);
    return drawn;
  };
  for (int i = 0; i < 2000; ++i) {
    const std::string a = word(), b = word();
    EXPECT_EQ(edits(a, b), by_recursion(a, b)) << a << " " << b;
  }
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
  EXPECT_EQ(json_quote("x\xFFy\xC3"), R"("x\u0000ffy\u0000c3")");
}

TEST(EscapeBytes, ChangesOnlyWhatIsNoUtf8) {
  using namespace std::string_literals;
  EXPECT_EQ(escape_bytes("a/\xED\x95\x9C"), "a/\xED\x95\x9C");
  EXPECT_EQ(escape_bytes("caf\xE9/\xED\xA0\x80"), "caf\0e9/\0ed\0a0\080"s);
  EXPECT_EQ(escape_bytes("\0e9"s),
            "\0"
            "00e9"s);
  EXPECT_EQ(unescape_bytes("\0 \0g0 \0e\0"s), "\0 \0g0 \0e\0"s);
}

TEST(EscapeBytes, GivesAnyBytesBack) {
  std::mt19937 random(5);
  const std::string_view likely(
      "\0"
      "00e9f\xC3\xA9\xF0\x9F\x98\x80\"\\",
      16);
  for (int i = 0; i < 20000; ++i) {
    std::string bytes(random() % 12, '\0');
    for (char& one : bytes) {
      one = i % 2 == 0 ? likely[random() % likely.size()] : static_cast<char>(random() % 256);
    }
    const std::string escaped = escape_bytes(bytes);
    ASSERT_FALSE(escaped != bytes && !holds_bytes(bytes));
    for (std::string_view rest = escaped; !rest.empty(); rest.remove_prefix(utf8_length(rest))) {
      ASSERT_GT(utf8_length(rest), 0U);
    }
    ASSERT_EQ(unescape_bytes(escaped), bytes);
  }
}

TEST(TextColumns, CountsCharactersAndNotBytes) {
  EXPECT_EQ(text_columns("abc"), 3U);
  EXPECT_EQ(text_columns("한지 é"), 4U);
  EXPECT_EQ(text_columns("\xff"), 1U);
}

TEST(Wrap, BreaksAtBlanksAndIndentsWhatFollows) {
  EXPECT_EQ(wrap("one two three", 7), "one two\nthree");
  EXPECT_EQ(wrap("  one two three", 9, 2), "  one two\n    three");
  EXPECT_EQ(wrap("short", 7), "short");
}

TEST(Wrap, KeepsLinesAndWordsThatAreLonger) {
  EXPECT_EQ(wrap("a\n\nb c\n", 2), "a\n\nb\nc\n");
  EXPECT_EQ(wrap("/a/long/path x", 4), "/a/long/path\nx");
}

}  // namespace
}  // namespace hanji::base
