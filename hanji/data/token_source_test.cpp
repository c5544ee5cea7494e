#include "hanji/data/token_source.h"

#include <gmock/gmock.h>

#include <vector>

namespace hanji::data {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

template <class T>
TokenSource source_of(std::vector<T> ids, TokenWidth width) {
  auto owner = std::make_shared<std::vector<T>>(std::move(ids));
  const auto bytes = std::as_bytes(std::span<const T>(*owner));
  return TokenSource(owner, bytes, width);
}

std::vector<int64_t> copy(const TokenSource& source, int64_t begin, int64_t count) {
  std::vector<int64_t> out(static_cast<size_t>(count));
  EXPECT_TRUE(source.copy_tokens(begin, count, out.data()).ok());
  return out;
}

TEST(TokenSource, WidensEveryWidth) {
  EXPECT_THAT(copy(source_of<uint8_t>({0, 255, 7}, TokenWidth::kUInt8), 1, 2), ElementsAre(255, 7));
  EXPECT_THAT(copy(source_of<int8_t>({-1, 127}, TokenWidth::kInt8), 0, 2), ElementsAre(-1, 127));
  EXPECT_THAT(copy(source_of<uint16_t>({1, 65535}, TokenWidth::kUInt16), 1, 1), ElementsAre(65535));
  EXPECT_THAT(copy(source_of<int16_t>({-2}, TokenWidth::kInt16), 0, 1), ElementsAre(-2));
  EXPECT_THAT(copy(source_of<int32_t>({-3, 9}, TokenWidth::kInt32), 0, 2), ElementsAre(-3, 9));
  EXPECT_THAT(copy(source_of<uint32_t>({0xFFFFFFFF}, TokenWidth::kUInt32), 0, 1),
              ElementsAre(0xFFFFFFFFLL));
  EXPECT_THAT(copy(source_of<int64_t>({int64_t{1} << 40}, TokenWidth::kInt64), 0, 1),
              ElementsAre(int64_t{1} << 40));
}

TEST(TokenSource, ReadsAtAnOddAddress) {
  auto owner = std::make_shared<std::vector<std::byte>>(
      std::vector<std::byte>{std::byte{9}, std::byte{1}, std::byte{2}, std::byte{3}, std::byte{4}});
  const TokenSource source(owner, std::span<const std::byte>(*owner).subspan(1),
                           TokenWidth::kUInt16);
  EXPECT_THAT(copy(source, 0, 2), ElementsAre(0x0201, 0x0403));
}

TEST(TokenSource, RefusesRangesOutside) {
  const auto source = source_of<uint8_t>({1, 2, 3}, TokenWidth::kUInt8);
  int64_t out[4];
  for (const auto& [begin, count] : {std::pair<int64_t, int64_t>{-1, 1},
                                     {0, 4},
                                     {3, 1},
                                     {1, -1},
                                     {1, INT64_MAX},
                                     {INT64_MAX, 1}}) {
    EXPECT_EQ(source.copy_tokens(begin, count, out).code(), Code::kInvalidArgument) << begin;
  }
  EXPECT_TRUE(source.copy_tokens(3, 0, out).ok());
}

TEST(TokenSource, NamesTheFirstIdBeyondTheVocabulary) {
  std::vector<uint16_t> ids(10000, 5);
  ids[4099] = 700;
  ids[9000] = 900;
  const auto source = source_of(std::move(ids), TokenWidth::kUInt16);
  EXPECT_TRUE(source.check_vocabulary(901).ok());
  const Status status = source.check_vocabulary(700);
  EXPECT_EQ(status.code(), Code::kCorrupt);
  EXPECT_THAT(status.message(), HasSubstr("token 700 at position 4099"));
  EXPECT_THAT(status.message(), HasSubstr("at least 901"));
  EXPECT_EQ(source.largest_token(), 900);
}

TEST(TokenSource, RefusesNegativeIds) {
  const auto source = source_of<int32_t>({4, -7}, TokenWidth::kInt32);
  EXPECT_THAT(source.check_vocabulary(10).message(), HasSubstr("token -7 at position 1"));
}

TEST(TokenSource, ChecksumTellsTextsApart) {
  const auto a = source_of<uint8_t>({1, 2, 3}, TokenWidth::kUInt8);
  const auto b = source_of<uint8_t>({1, 2, 4}, TokenWidth::kUInt8);
  EXPECT_NE(a.checksum(), b.checksum());
  EXPECT_EQ(a.checksum(), source_of<uint8_t>({1, 2, 3}, TokenWidth::kUInt8).checksum());
}

}  // namespace
}  // namespace hanji::data
