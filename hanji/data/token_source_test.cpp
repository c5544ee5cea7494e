#include "hanji/data/token_source.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "hanji/base/simd.h"

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

/// 301 ids around the ends of T, which fill no whole number of vectors.
template <class T>
void expect_widened(TokenWidth width) {
  std::vector<T> ids;
  for (int64_t i = 0; i < 301; ++i) {
    ids.push_back(static_cast<T>(i % 3 == 0 ? std::numeric_limits<T>::max() - i : i));
  }
  const std::vector<int64_t> expected(ids.begin(), ids.end());
  for (const int64_t largest : {0, 5, 64, 299, 300}) {
    std::vector<T> small(ids.size(), 1);
    small[static_cast<size_t>(largest)] = 100;
    const TokenSource source = source_of(small, width);
    EXPECT_TRUE(source.check_vocabulary(101).ok());
    EXPECT_TRUE(source.check_vocabulary(100, largest + 1).ok());
    EXPECT_TRUE(source.check_vocabulary(100, 0, largest).ok());
    const std::string place = "token 100 at position " + std::to_string(largest);
    EXPECT_THAT(source.check_vocabulary(100).message(), HasSubstr(place));
    std::vector<int64_t> x(300), y(300);
    EXPECT_TRUE(source.copy_pair(0, 300, 101, x.data(), y.data()).ok());
    EXPECT_THAT(source.copy_pair(0, 300, 100, x.data(), y.data()).message(), HasSubstr(place));
  }
  const TokenSource source = source_of(std::move(ids), width);
  EXPECT_EQ(copy(source, 0, 301), expected);
  for (const int64_t count : {0, 1, 7, 64, 150, 299}) {
    std::vector<int64_t> x(static_cast<size_t>(count)), y = x;
    const Status status = source.copy_pair(1, count, INT64_MAX, x.data(), y.data());
    const bool has_negative = std::ranges::any_of(std::span(expected).subspan(1, count + 1),
                                                  [](int64_t id) { return id < 0; });
    EXPECT_EQ(status.ok(), !has_negative) << count;
    EXPECT_TRUE(std::ranges::equal(x, std::span(expected).subspan(1, count))) << count;
    EXPECT_TRUE(std::ranges::equal(y, std::span(expected).subspan(2, count))) << count;
  }
}

TEST(TokenSource, EveryVectorWidthWidensAndChecksEveryId) {
  const base::Simd before = base::simd_in_use().or_throw();
  for (const base::Simd level : base::kSimdLevels) {
    if (!base::check_simd(level).ok()) continue;
    base::throw_if_error(base::use_simd(level));
    expect_widened<uint8_t>(TokenWidth::kUInt8);
    expect_widened<int8_t>(TokenWidth::kInt8);
    expect_widened<uint16_t>(TokenWidth::kUInt16);
    expect_widened<int16_t>(TokenWidth::kInt16);
    expect_widened<int32_t>(TokenWidth::kInt32);
    expect_widened<uint32_t>(TokenWidth::kUInt32);
    expect_widened<int64_t>(TokenWidth::kInt64);
  }
  base::throw_if_error(base::use_simd(before));
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
  for (const auto& [begin, count] : {std::pair<int64_t, int64_t>{0, 3}, {-1, 1}, {3, 0}}) {
    const Status status = source.copy_pair(begin, count, 10, out, out);
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << "no token is the last one's target";
  }
}

TEST(TokenSource, WhatIsExpectedMayBeAnywhereAndChangesNothing) {
  const auto source = source_of<uint16_t>({1, 2, 3}, TokenWidth::kUInt16);
  for (const int64_t begin : {int64_t{-100}, int64_t{0}, int64_t{2}, int64_t{9}, INT64_MAX}) {
    source.expect(begin);
    int64_t x[2], y[2];
    EXPECT_TRUE(source.copy_pair(0, 2, 4, x, y).ok());
    EXPECT_THAT(x, ElementsAre(1, 2));
    EXPECT_THAT(y, ElementsAre(2, 3));
  }
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
