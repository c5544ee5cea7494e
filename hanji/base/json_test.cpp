#include "hanji/base/json.h"

#include <gmock/gmock.h>

#include <chrono>

#include <string>

namespace hanji::base {
namespace {

using testing::HasSubstr;

TEST(ParseJson, KeepsTheOrderOfKeys) {
  const auto json = parse_json(R"({"z":1,"a":[2,"x"],"m":{"q":null}})");
  ASSERT_TRUE(json.ok());
  EXPECT_EQ((*json).dump(), R"({"z":1,"a":[2,"x"],"m":{"q":null}})");
}

TEST(ParseJson, TellsTheByteWhereItStops) {
  const auto json = parse_json(R"({"a": tru})");
  EXPECT_EQ(json.status().code(), Code::kCorrupt);
  EXPECT_THAT(json.status().message(), HasSubstr("column 10"));
  EXPECT_THAT(json.status().message(), testing::Not(HasSubstr("json.exception")));
}

TEST(ParseJson, RefusesCutTextAtEveryLength) {
  const std::string text = R"({"a":[1,{"b":"c\u0041"}],"d":-1.5e3})";
  for (size_t size = 0; size < text.size(); ++size) {
    EXPECT_EQ(parse_json(text.substr(0, size)).status().code(), Code::kCorrupt) << size;
  }
  EXPECT_TRUE(parse_json(text).ok());
}

TEST(ParseJson, RefusesTooManyOpenBracketsButNotBracketsInStrings) {
  EXPECT_TRUE(parse_json("[[[]]]", 3).ok());
  EXPECT_EQ(parse_json("[[[[]]]]", 3).status().code(), Code::kCorrupt);
  EXPECT_EQ(parse_json(std::string(1'000'000, '[')).status().code(), Code::kCorrupt);
  EXPECT_TRUE(parse_json(R"(["[[[[[\"[[["])", 1).ok());
  EXPECT_TRUE(parse_json("[[],[],[],[]]", 2).ok());
}

TEST(ParseJson, RefusesARepeatedKeyInAnyObject) {
  const auto json = parse_json(R"({"a":{"k":1},"b":[{"k":1,"j":2,"k":3}]})");
  EXPECT_EQ(json.status().code(), Code::kCorrupt);
  EXPECT_THAT(json.status().message(), HasSubstr("'k' comes twice"));
  EXPECT_TRUE(parse_json(R"({"a":{"k":1},"b":{"k":1}})").ok());
}

TEST(ParseJson, ReadsManyKeysInLinearTime) {
  const auto seconds = [](int num_keys) {
    std::string text = "{";
    for (int i = 0; i < num_keys; ++i) text += "\"" + std::to_string(i) + "\":0,";
    text.back() = '}';
    const auto begin = std::chrono::steady_clock::now();
    const auto json = parse_json(text);
    EXPECT_TRUE(json.ok() && json->size() == static_cast<size_t>(num_keys));
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  };
  // Searching all keys for every new one takes minutes here.
  EXPECT_LT(seconds(500'000), 10);
}

TEST(ParseJson, RefusesMoreBytesThanAllowedAndInvalidUtf8) {
  EXPECT_EQ(parse_json("[1,2,3]", 64, 6).status().code(), Code::kCorrupt);
  EXPECT_EQ(parse_json("\"\xFF\"").status().code(), Code::kCorrupt);
  EXPECT_EQ(parse_json("[1] x").status().code(), Code::kCorrupt);
}

TEST(Dump, ParsingGivesBackStringsAndKeysOfAnyBytes) {
  const std::string all = [] {
    std::string bytes;
    for (int i = 0; i < 512; ++i) bytes += static_cast<char>(i * 37);
    return bytes;
  }();
  for (const std::string& bytes : {std::string("caf\xE9/x"),
                                   std::string("\0"
                                               "e9",
                                               3),
                                   all}) {
    const Json json = {{bytes, {1, bytes, {{"in", bytes}}}}};
    for (const int indent : {-1, 2}) {
      const std::string text = dump(json, indent);
      EXPECT_EQ(text.find("\xEF\xBF\xBD"), text.npos);
      const auto back = parse_json(text);
      ASSERT_TRUE(back.ok()) << back.status().message();
      EXPECT_EQ(*back, json);
    }
  }
  EXPECT_EQ(dump({{"plain", "\xC3\xA9"}}), "{\"plain\":\"\xC3\xA9\"}");
}

}  // namespace
}  // namespace hanji::base
