#include "hanji/data/token_file.h"

#include <gmock/gmock.h>

#include <vector>

#include "hanji/data/internal/test_files.h"
#include "hanji/test/temporary_folder.h"

namespace hanji::data {
namespace {

using internal::write_file;
using testing::ElementsAre;
using testing::HasSubstr;

template <class T>
std::string token_bytes(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

std::string llmc_header(int32_t magic, int32_t version, int32_t count) {
  std::vector<int32_t> header(256, 0);
  header[0] = magic;
  header[1] = version;
  header[2] = count;
  return token_bytes(header);
}

std::vector<int64_t> all(const Result<TokenSource>& source) {
  EXPECT_TRUE(source.ok()) << source.status().message();
  if (!source.ok()) return {};
  std::vector<int64_t> out(static_cast<size_t>(source->num_tokens()));
  EXPECT_TRUE(source->copy_tokens(0, source->num_tokens(), out.data()).ok());
  return out;
}

TEST(OpenTokens, ReadsNanoGpt) {
  const test::TemporaryFolder folder;
  const auto path = write_file(folder.path(), "train.bin", bytes_of<uint16_t>({1, 50256, 3}));
  EXPECT_THAT(all(open_tokens(path)), ElementsAre(1, 50256, 3));
}

TEST(OpenTokens, ReadsBothKindsOfLlmC) {
  const test::TemporaryFolder folder;
  const auto gpt2 = write_file(folder.path(), "gpt2.bin",
                               llmc_header(20240520, 1, 2) + bytes_of<uint16_t>({50256, 7}));
  EXPECT_THAT(all(open_tokens(gpt2)), ElementsAre(50256, 7));
  const auto llama3 = write_file(folder.path(), "llama3.bin",
                                 llmc_header(20240801, 7, 2) + bytes_of<uint32_t>({128000, 7}));
  EXPECT_THAT(all(open_tokens(llama3)), ElementsAre(128000, 7));
}

TEST(OpenTokens, TakesTheFormatItIsTold) {
  const test::TemporaryFolder folder;
  const auto path = write_file(folder.path(), "a.bin", llmc_header(20240520, 1, 0));
  EXPECT_EQ(all(open_tokens(path, TokenFormat::kNanoGpt)).size(), 512u);
  EXPECT_EQ(open_tokens(path, TokenFormat::kLlmC).status().code(), Code::kCorrupt);
  EXPECT_EQ(open_tokens(path, TokenFormat::kMegatron).status().code(), Code::kNotFound);
}

TEST(OpenTokens, RefusesHalfATokenAndNothing) {
  const test::TemporaryFolder folder;
  EXPECT_THAT(open_tokens(write_file(folder.path(), "odd.bin", "abc")).status().message(),
              HasSubstr("odd.bin: 3 bytes"));
  EXPECT_EQ(open_tokens(write_file(folder.path(), "none.bin", "")).status().code(), Code::kCorrupt);
  EXPECT_EQ(open_tokens(folder.path() / "absent.bin").status().code(), Code::kNotFound);
}

TEST(OpenTokens, APrefixWithoutItsIndexIsNamedWithTheFileThatIsThere) {
  const test::TemporaryFolder folder;
  write_file(folder.path(), "corpus.v1.bin", bytes_of<uint16_t>({1, 2}));
  const Status status = open_tokens(folder.path() / "corpus.v1").status();
  EXPECT_EQ(status.code(), Code::kNotFound);
  EXPECT_THAT(status.message(), HasSubstr("corpus.v1.bin is there without "));
}

struct BadHeader {
  int32_t version;
  int32_t count;
  size_t body;
};

class BadLlmC : public testing::TestWithParam<BadHeader> {};

TEST_P(BadLlmC, IsRefused) {
  const auto& [version, count, body] = GetParam();
  const std::string file = llmc_header(20240520, version, count) + std::string(body, 'x');
  const auto layout = parse_llmc(std::as_bytes(std::span(file)));
  EXPECT_EQ(layout.status().code(), Code::kCorrupt);
}

// Another version; no tokens; fewer and more than promised; half a token; a negative count.
INSTANTIATE_TEST_SUITE_P(Headers, BadLlmC,
                         testing::Values(BadHeader{2, 4, 8}, BadHeader{1, 0, 0}, BadHeader{1, 4, 6},
                                         BadHeader{1, 4, 10}, BadHeader{1, 4, 9},
                                         BadHeader{1, -1, 8}, BadHeader{1, INT32_MAX, 8}));

TEST(ParseLlmC, RefusesEveryTruncation) {
  const std::string file = llmc_header(20240520, 1, 3) + bytes_of<uint16_t>({1, 2, 3});
  const auto bytes = std::as_bytes(std::span(file));
  ASSERT_TRUE(parse_llmc(bytes).ok());
  for (size_t size = 0; size < file.size(); ++size) {
    EXPECT_EQ(parse_llmc(bytes.first(size)).status().code(), Code::kCorrupt) << size;
  }
}

TEST(TokenFormat, ReturnsFromItsName) {
  for (const auto format :
       {TokenFormat::kAuto, TokenFormat::kNanoGpt, TokenFormat::kLlmC, TokenFormat::kMegatron}) {
    EXPECT_EQ(token_format(name_of(format)), format);
  }
  EXPECT_EQ(token_format("gguf"), std::nullopt);
}

}  // namespace
}  // namespace hanji::data
