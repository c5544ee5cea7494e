#include <gmock/gmock.h>

#include <vector>

#include "hanji/data/internal/test_files.h"
#include "hanji/data/token_file.h"
#include "hanji/test/temporary_folder.h"

namespace hanji::data {
namespace {

using internal::write_file;
using testing::ElementsAre;
using testing::HasSubstr;

template <class T>
std::string bytes_of(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

struct Index {
  std::string magic = std::string("MMIDIDX\0\0", 9);
  uint64_t version = 1;
  uint8_t code = 8;
  std::vector<int32_t> lengths = {2, 0, 1};
  std::vector<int64_t> pointers = {0, 4, 4};
  std::vector<int64_t> documents = {0, 1, 3};
  std::string modes = {};
  uint64_t sequences = 3;
  uint64_t entries = 3;

  std::string bytes() const {
    return magic + bytes_of<uint64_t>({version}) + static_cast<char>(code) +
           bytes_of<uint64_t>({sequences, entries}) + bytes_of(lengths) + bytes_of(pointers) +
           bytes_of(documents) + modes;
  }
};

Result<TokenLayout> parse_layout(const Index& index, uint64_t bin_bytes = 6) {
  const std::string bytes = index.bytes();
  return parse_megatron_index(std::as_bytes(std::span(bytes)), bin_bytes);
}

TEST(MegatronIndex, OpensThePairByAnyOfItsNames) {
  const test::TemporaryFolder folder;
  const auto index = write_file(folder.path(), "text_document.idx", Index{}.bytes());
  const auto tokens =
      write_file(folder.path(), "text_document.bin", bytes_of<uint16_t>({10, 20, 30}));
  for (const auto& path : {index, tokens, folder.path() / "text_document"}) {
    const auto source = open_tokens(path);
    ASSERT_TRUE(source.ok()) << source.status().message();
    std::vector<int64_t> out(3);
    ASSERT_TRUE(source->copy_tokens(0, 3, out.data()).ok());
    EXPECT_THAT(out, ElementsAre(10, 20, 30));
  }
}

TEST(MegatronIndex, KnowsTheElementTypes) {
  EXPECT_EQ(parse_layout({})->width, TokenWidth::kUInt16);
  EXPECT_EQ(parse_layout({.code = 1, .pointers = {0, 2, 2}}, 3)->width, TokenWidth::kUInt8);
  EXPECT_EQ(parse_layout({.code = 4, .pointers = {0, 8, 8}}, 12)->width, TokenWidth::kInt32);
  EXPECT_EQ(parse_layout({.code = 5, .pointers = {0, 16, 16}}, 24)->width, TokenWidth::kInt64);
  EXPECT_EQ(parse_layout({.code = 6}).status().code(), Code::kUnsupported);
  EXPECT_EQ(parse_layout({.code = 9}).status().code(), Code::kCorrupt);
  EXPECT_EQ(parse_layout({.code = 0}).status().code(), Code::kCorrupt);
}

TEST(MegatronIndex, AllowsModesBehind) {
  EXPECT_TRUE(parse_layout({.modes = std::string(3, 0)}).ok());
  EXPECT_FALSE(parse_layout({.modes = std::string(2, 0)}).ok());
}

TEST(MegatronIndex, RefusesWhatDoesNotAgree) {
  const std::vector<Index> bad = {
      {.magic = std::string("MMIDIDY\0\0", 9)},
      {.version = 2},
      {.lengths = {2, 0, 2}},
      {.lengths = {2, -1, 1}},
      {.lengths = {INT32_MAX, 0, 1}},
      {.pointers = {0, 4, 2}},
      {.pointers = {0, 4, INT64_MIN}},
      {.pointers = {2, 4, 4}},
      {.documents = {1, 1, 3}},
      {.documents = {0, 3, 1}},
      {.documents = {0, 1, 4}},
      {.documents = {0, 1, -1}},
      {.sequences = 4},
      {.sequences = uint64_t{1} << 63},
      {.entries = uint64_t{1} << 61},
      // 12 * 2^62 is 0 modulo 2^64: only a check before the product sees it.
      {.sequences = (uint64_t{1} << 62) + 3},
  };
  for (size_t i = 0; i < bad.size(); ++i) {
    EXPECT_EQ(parse_layout(bad[i]).status().code(), Code::kCorrupt) << "case " << i;
  }
  EXPECT_EQ(parse_layout({}, 7).status().code(), Code::kCorrupt);
  EXPECT_THAT(parse_layout({}, 5).status().message(), HasSubstr("sequence 2 has 1 tokens"));
}

TEST(MegatronIndex, RefusesEveryTruncation) {
  const std::string bytes = Index{}.bytes();
  for (size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_FALSE(parse_megatron_index(std::as_bytes(std::span(bytes)).first(size), 6).ok()) << size;
  }
}

}  // namespace
}  // namespace hanji::data
