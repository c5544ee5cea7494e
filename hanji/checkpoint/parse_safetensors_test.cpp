#include <fmt/format.h>
#include <gmock/gmock.h>

#include <string>

#include "hanji/checkpoint/safetensors.h"

namespace hanji::checkpoint {
namespace {

using testing::HasSubstr;

std::string file_of(std::string header, size_t data_bytes, size_t alignment = 8) {
  header.resize((header.size() + alignment - 1) / alignment * alignment, ' ');
  std::string file(8, '\0');
  for (size_t i = 0; i < 8; ++i) file[i] = static_cast<char>(header.size() >> 8 * i);
  return file + header + std::string(data_bytes, 'd');
}

Result<Safetensors> parse(const std::string& file) {
  return parse_safetensors(std::as_bytes(std::span(file)));
}

// One tensor of two floats unless told otherwise.
std::string tensor(const std::string& name, const std::string& offsets = "0,8",
                   const std::string& shape = "2", const std::string& dtype = "F32") {
  return "\"" + name + R"(":{"dtype":")" + dtype + R"(","shape":[)" + shape +
         R"(],"data_offsets":[)" + offsets + "]}";
}

TEST(ParseSafetensors, TakesKeysInAnyOrderAndWhiteSpace) {
  const auto content = parse(
      file_of("{ \"a\\u00e9\\ud83d\\ude00\" : { \"shape\" : [ 2 , 1 ] ,\n\"data_offsets\":[0,8], "
              "\"dtype\":\"F32\"},\t\"__metadata__\":{} } ",
              8));
  ASSERT_TRUE(content.ok()) << content.status().message();
  EXPECT_EQ(content->tensors.at(0).name, "a\xC3\xA9\xF0\x9F\x98\x80");
  EXPECT_EQ(content->tensors[0].shape, (std::vector<int64_t>{2, 1}));
  EXPECT_EQ(content->tensors[0].bytes.size(), 8u);
}

TEST(ParseSafetensors, OrdersTensorsByTheirBytes) {
  const auto content = parse(file_of(
      "{" + tensor("z", "8,16") + "," + tensor("empty", "8,8", "0") + "," + tensor("y") + "}", 16));
  ASSERT_TRUE(content.ok()) << content.status().message();
  EXPECT_EQ(content->tensors.at(0).name, "y");
  EXPECT_EQ(content->tensors.at(1).name, "empty");
  EXPECT_EQ(content->tensors.at(2).name, "z");
}

struct Hostile {
  const char* name;
  std::string header;
  size_t data_bytes;
  const char* reason;
};

class HostileHeader : public testing::TestWithParam<Hostile> {};

TEST_P(HostileHeader, IsRefusedWithItsReason) {
  const auto content = parse(file_of(GetParam().header, GetParam().data_bytes));
  ASSERT_FALSE(content.ok());
  EXPECT_THAT(content.status().message(), HasSubstr(GetParam().reason));
}

INSTANTIATE_TEST_SUITE_P(
    Structure, HostileHeader,
    testing::Values(
        Hostile{"NoObject", "[]", 0, "'{' must stand here"},
        Hostile{"SpaceFirst", " {}", 0, "'{' must stand here"},
        Hostile{"Nothing", "        ", 0, "'{' must stand here"},
        Hostile{"Twice", "{}{}", 0, "nothing may follow"},
        Hostile{"Unclosed", "{" + tensor("a"), 8, "'}' must stand here"},
        Hostile{"TrailingComma", "{" + tensor("a") + ",}", 8, "'\"' must stand here"},
        Hostile{"ForeignKey", R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8],"x":1}})", 8,
                "foreign or repeated"},
        Hostile{"RepeatedKey", R"({"a":{"dtype":"F32","dtype":"F32","shape":[2]}})", 8,
                "foreign or repeated"},
        Hostile{"MissingKey", R"({"a":{"dtype":"F32","shape":[2]}})", 8, "has dtype, shape and"},
        Hostile{"Deep", R"({"a":)" + std::string(1 << 20, '['), 8, "'{' must stand here"},
        Hostile{"DeepMetadata", R"({"__metadata__":{"a":{"b":"c"}}})", 0, "'\"' must stand here"},
        Hostile{"MetadataTwice", R"({"__metadata__":{},"__metadata__":{}})", 0, "comes twice"},
        Hostile{"MetadataKeyTwice", R"({"__metadata__":{"a":"b","a":"c"}})", 0, "comes twice"},
        Hostile{"SameName", "{" + tensor("a") + "," + tensor("a", "8,16") + "}", 16,
                "two tensors are named 'a'"},
        Hostile{"EscapedSameName", "{" + tensor("a") + "," + tensor("\\u0061", "8,16") + "}", 16,
                "two tensors are named 'a'"},
        Hostile{"Comment", "{/**/}", 0, "'\"' must stand here"}),
    [](const auto& info) { return info.param.name; });

INSTANTIATE_TEST_SUITE_P(
    Text, HostileHeader,
    testing::Values(Hostile{"NotUtf8", "{" + tensor("\xFF") + "}", 8, "not UTF-8"},
                    Hostile{"Overlong", "{" + tensor("\xC0\xAF") + "}", 8, "not UTF-8"},
                    Hostile{"Control", "{" + tensor("a\nb") + "}", 8, "control character"},
                    Hostile{"HalfPair", "{" + tensor("\\ud800") + "}", 8, "half a surrogate"},
                    Hostile{"LowFirst", "{" + tensor("\\udc00") + "}", 8, "half a surrogate"},
                    Hostile{"PairOfHighs", "{" + tensor("\\ud800\\ud800") + "}", 8, "half a"},
                    Hostile{"BadHex", "{" + tensor("\\u00g0") + "}", 8, "four hexadecimal"},
                    Hostile{"SignedHex", "{" + tensor("\\u-001") + "}", 8, "four hexadecimal"},
                    Hostile{"BadEscape", "{" + tensor("\\x") + "}", 8, "no such escape"},
                    Hostile{"Endless", "{\"aaaaaa", 0, "does not end"}),
    [](const auto& info) { return info.param.name; });

INSTANTIATE_TEST_SUITE_P(
    Numbers, HostileHeader,
    testing::Values(
        Hostile{"Overlap", "{" + tensor("a") + "," + tensor("b", "4,12") + "}", 12, "overlaps"},
        Hostile{"Hole", "{" + tensor("a") + "," + tensor("b", "12,20") + "}", 20, "leaves a hole"},
        Hostile{"LateBegin", "{" + tensor("a", "8,16") + "}", 16, "leaves a hole"},
        Hostile{"BytesLeftOver", "{" + tensor("a") + "}", 9, "end at byte 8 of 9"},
        Hostile{"TooShort", "{" + tensor("a") + "}", 7, "leaves the file"},
        Hostile{"Backwards", "{" + tensor("a", "0,-8") + "}", 8, "without sign"},
        Hostile{"EndFirst",
                "{" + tensor("e", "0,0", "0") + "," + tensor("a", "0,8") + "," +
                    tensor("b", "8,0") + "}",
                8, "leaves the file"},
        Hostile{"WrongSize", "{" + tensor("a", "0,8", "3") + "}", 8, "has another size"},
        Hostile{"HugeOffset", "{" + tensor("a", "0,9223372036854775807") + "}", 8,
                "leaves the file"},
        Hostile{"BeyondInt64", "{" + tensor("a", "0,9223372036854775808") + "}", 8, "beyond 2^63"},
        Hostile{"HugeShape", "{" + tensor("a", "0,8", "9223372036854775807") + "}", 8,
                "has another size"},
        // 2^62 * 4 * 4 bytes is 0 modulo 2^64.
        Hostile{"WrappingShape", "{" + tensor("a", "0,0", "4611686018427387904,4") + "}", 0,
                "has another size"},
        Hostile{"ZeroTimesNegative", "{" + tensor("a", "0,0", "0,-1") + "}", 0, "without sign"},
        Hostile{"Fraction", "{" + tensor("a", "0,8", "2.0") + "}", 8, "']' must stand here"},
        Hostile{"Exponent", "{" + tensor("a", "0,8", "2e0") + "}", 8, "']' must stand here"},
        Hostile{"LeadingZero", "{" + tensor("a", "0,8", "02") + "}", 8, "may not begin with 0"},
        Hostile{"ThreeOffsets", "{" + tensor("a", "0,8,8") + "}", 8, "more than 2 numbers"},
        Hostile{"OneOffset", "{" + tensor("a", "8") + "}", 8, "two numbers"},
        Hostile{"ForeignSize", "{" + tensor("a", "0,8", "2", "I16") + "}", 8,
                "I16 [2] has another size"},
        Hostile{"HalfAByte", "{" + tensor("a", "0,2", "3", "F4") + "}", 2, "F4 [3] has another"},
        Hostile{"WrappingBits", "{" + tensor("a", "0,0", "2305843009213693952", "U64") + "}", 0,
                "has another size"},
        Hostile{"ForeignHole", "{" + tensor("a", "4,8", "2", "U16") + "}", 8, "leaves a hole"},
        Hostile{"UnknownBeyond", "{" + tensor("a", "0,9", "2", "X9") + "}", 8, "leaves the file"},
        Hostile{"NoType", "{" + tensor("a", "0,8", "2", "") + "}", 8, "at most 32 bytes"},
        Hostile{"LongType", "{" + tensor("a", "0,8", "2", std::string(33, 'F')) + "}", 8,
                "at most 32 bytes"}),
    [](const auto& info) { return info.param.name; });

TEST(ParseSafetensors, RefusesAHeaderLengthBeyondTheFile) {
  for (const uint64_t length :
       {uint64_t{9}, uint64_t{100'000'001}, uint64_t{1} << 63, ~uint64_t{0}}) {
    std::string file = file_of("{}", 0);
    for (size_t i = 0; i < 8; ++i) file[i] = static_cast<char>(length >> 8 * i);
    EXPECT_THAT(parse(file).status().message(), HasSubstr("the header claims"));
  }
}

TEST(ParseSafetensors, TakesAHeaderOfAnyLengthAndTensorsAtAnyByte) {
  for (size_t spaces = 0; spaces < 8; ++spaces) {
    const std::string header = "{" + tensor("a", "0,1", "1", "U8") + "," + tensor("b", "1,9") + "}";
    const auto content = parse(file_of(header + std::string(spaces, ' '), 9, 1));
    ASSERT_TRUE(content.ok()) << content.status().message();
    EXPECT_EQ(content->tensors.at(1).bytes.size(), 8u);
  }
}

TEST(ParseSafetensors, KeepsTensorsOfOtherTypesApart) {
  const std::string file = file_of(
      "{" + tensor("a") + "," + tensor("b", "8,12", "2", "U16") + "," +
          tensor("c", "12,13", "2", "F4") + "," + tensor("d", "13,16", "4", "F6_E2M3") + "," +
          tensor("e", "16,21", "9", "F99") + "," + tensor("f", "21,22", "1", "F8_E8M0") + "}",
      22);
  const auto content = parse(file);
  ASSERT_TRUE(content.ok()) << content.status().message();
  ASSERT_EQ(content->tensors.size(), 1u);
  EXPECT_EQ(content->tensors[0].name, "a");
  ASSERT_EQ(content->foreign.size(), 5u);
  EXPECT_EQ(describe(content->foreign[0]), "U16 [2]");
  EXPECT_EQ(content->foreign[2].bytes.size(), 3u);
  EXPECT_EQ(describe(content->foreign[3]), "F99 [9]");
}

TEST(ParseSafetensors, RefusesEveryTruncation) {
  const std::string file = file_of("{" + tensor("a") + "}", 8);
  ASSERT_TRUE(parse(file).ok());
  for (size_t size = 0; size < file.size(); ++size) {
    EXPECT_FALSE(parse(file.substr(0, size)).ok()) << size;
  }
}

TEST(ParseSafetensors, BoundsWhatAHeaderMayAskFor) {
  std::string many = "{\"__metadata__\":{";
  for (size_t i = 0; i <= kMaxMetadata; ++i) many += fmt::format("\"{}\":\"\",", i);
  many.back() = '}';
  EXPECT_EQ(parse(file_of(many + "}", 0)).status().code(), Code::kUnsupported);
  std::string shape = "1";
  for (size_t i = 0; i < kMaxDimensions; ++i) shape += ",1";
  EXPECT_THAT(parse(file_of("{" + tensor("a", "0,4", shape) + "}", 4)).status().message(),
              HasSubstr("more than 64 numbers"));
}

TEST(ParseSafetensors, RefusesAHundredMegabytesOfNothingInTime) {
  // The largest header that is looked into, with as many names as fit and a flaw at its very end.
  std::string header = "{";
  for (size_t i = 0; header.size() < 20'000'000; ++i) {
    header += tensor(std::to_string(i), "0,0", "0") + ",";
  }
  EXPECT_FALSE(parse(file_of(header, 0)).ok());
}

}  // namespace
}  // namespace hanji::checkpoint
