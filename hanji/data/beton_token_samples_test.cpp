#include "hanji/data/beton_token_samples.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <fstream>
#include <numeric>

#include "hanji/data/batch.h"
#include "hanji/data/beton_tokens.h"
#include "hanji/data/make_beton.h"
#include "hanji/test/temporary_folder.h"

namespace hanji::data {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

/// Of ids 1000, 1001, ...
template <class Id>
TokenSource rising_tokens(int64_t count, TokenWidth width) {
  const auto ids = std::make_shared<std::vector<Id>>(static_cast<size_t>(count));
  std::iota(ids->begin(), ids->end(), static_cast<Id>(1000));
  return {ids, std::as_bytes(std::span(*ids)), width};
}

class BetonTokenSamplesTest : public testing::Test {
 protected:
  fs::path make(const TokenSource& tokens, int64_t length, const std::string& name = "x.beton") {
    const fs::path path = folder_.path() / name;
    EXPECT_TRUE(make_beton(token_recipe(tokens, length, "{}").or_throw(), path).ok());
    return path;
  }
  static Result<BetonTokenSamples> open(const fs::path& path, const SampleOptions& options) {
    return BetonTokenSamples::create(BetonFile::open(path).or_throw(), options);
  }

  const test::TemporaryFolder folder_;
};

TEST_F(BetonTokenSamplesTest, AreTheSamplesOfTheTokensThatTheyWereMadeOf) {
  for (const auto& [tokens, name] :
       {std::pair(rising_tokens<uint16_t>(801, TokenWidth::kUInt16), "2"),
        std::pair(rising_tokens<int32_t>(801, TokenWidth::kInt32), "4")}) {
    const auto file =
        open(make(tokens, 8, name), {.block = 8, .validation_fraction = 0, .vocabulary = 5000})
            .or_throw();
    const auto source =
        TokenSamples::create(tokens, {.block = 8, .validation_fraction = 0, .vocabulary = 5000})
            .or_throw();
    ASSERT_EQ(file.num_train(), 100);
    ASSERT_EQ(source.num_train(), 100);
    EXPECT_EQ(file.largest_token(), 1800);
    const auto loader = Loader::create({.seed = 2,
                                        .num_samples = 100,
                                        .global_batch = 30,
                                        .share = {0, 30},
                                        .micro_batch = 30})
                            .or_throw();
    layers::Batch found, expected;
    for (int64_t step = 0; step < 4; ++step) {
      read_batch(file, loader, step, {0, 30}, found);
      read_batch(source, loader, step, {0, 30}, expected);
      EXPECT_TRUE(at::equal(found.inputs, expected.inputs));
      EXPECT_TRUE(at::equal(found.targets, expected.targets));
      EXPECT_EQ(found.num_valid, expected.num_valid);
    }
  }
}

TEST_F(BetonTokenSamplesTest, TheLastPartOfTheFileValidates) {
  const auto file = open(make(rising_tokens<uint16_t>(161, TokenWidth::kUInt16), 8),
                         {.block = 8, .validation_fraction = 0.2, .vocabulary = -1})
                        .or_throw();
  EXPECT_EQ(file.num_train(), 16);
  EXPECT_EQ(file.num_validation(), 4);
  EXPECT_EQ(file.train_pages().size(), 16U);
  layers::Batch batch;
  shape_batch(file.shape(), {0, 1}, batch);
  base::throw_if_error(file.read(Part::kValidation, 3, batch, 0));
  EXPECT_EQ(batch.inputs[0][0].item<int64_t>(), 1000 + 19 * 8);
  EXPECT_EQ(batch.targets[0][7].item<int64_t>(), 1000 + 20 * 8);
  EXPECT_EQ(file.read(Part::kTrain, 16, batch, 0).code(), Code::kInvalidArgument);
}

TEST_F(BetonTokenSamplesTest, SamplesFromTheCacheAreThoseOfTheFile) {
  constexpr int64_t kLength = 1 << 20, kSamples = 12;  // three of 2 MiB in each page of 8 MiB
  const fs::path path =
      make(rising_tokens<uint16_t>(kSamples * kLength + 1, TokenWidth::kUInt16), kLength);
  const SampleOptions options{.block = kLength, .validation_fraction = 0.1, .vocabulary = -1};
  const auto file = open(path, options).or_throw();
  const auto opened = BetonTokenSamples::create(BetonFile::open(path).or_throw(), options, 4);
  if (!opened.ok()) GTEST_SKIP() << opened.status().message();
  PageCache& cache = *opened->cache();
  std::vector<std::byte> memory(static_cast<size_t>(cache.memory_bytes(1)));
  cache.attach(memory.data(), 0, 1);
  const Loader loader =
      Loader::create({.num_samples = 10, .global_batch = 2, .share = {0, 2}, .micro_batch = 2})
          .or_throw();
  cache.start_reading(loader, opened->train_pages(), {0, 10}, 0);
  layers::Batch found, expected;
  for (int64_t step = 0; step < 10; ++step) {
    read_batch(*opened, loader, step, {0, 2}, found);
    read_batch(file, loader, step, {0, 2}, expected);
    EXPECT_TRUE(at::equal(found.inputs, expected.inputs));
    EXPECT_TRUE(at::equal(found.targets, expected.targets));
    cache.finish_step(step);
  }
  EXPECT_GE(cache.bytes_read(), int64_t{4} * 8 << 20);
  shape_batch(opened->shape(), {0, 1}, found);
  EXPECT_TRUE(opened->read(Part::kValidation, 1, found, 0).ok()) << "of the file";
  cache.stop();
}

TEST_F(BetonTokenSamplesTest, OtherLengthsVocabulariesAndFilesAreRefusedWithAWayOut) {
  const fs::path path = make(rising_tokens<uint16_t>(161, TokenWidth::kUInt16), 8);
  const auto mistake = [&](const SampleOptions& options) {
    return open(path, options).status().message();
  };
  EXPECT_THAT(mistake({.block = 16, .vocabulary = -1}), HasSubstr("set model.block = 8"));
  EXPECT_THAT(mistake({.block = 8, .vocabulary = 1100}), HasSubstr("at least 1161"));
  EXPECT_THAT(mistake({.block = 8, .validation_fraction = 0.99, .vocabulary = -1}),
              HasSubstr("a part without any"));
  auto writer =
      BetonWriter::create(folder_.path() / "y", {{"x", BetonType::kInt}}, {.num_samples = 1})
          .or_throw();
  const BetonValue value{.integer = 1};
  base::throw_if_error(writer.append({&value, 1}));
  base::throw_if_error(writer.finish());
  EXPECT_EQ(open(folder_.path() / "y", {.block = 8}).status().code(), Code::kUnsupported);
}

TEST_F(BetonTokenSamplesTest, AFlippedTokenIsAnErrorWithItsSample) {
  const fs::path path = make(rising_tokens<uint16_t>(161, TokenWidth::kUInt16), 8);
  const uint64_t heap = BetonFile::open(path).or_throw().sections().heap_begin;
  std::fstream(path, std::ios::in | std::ios::out | std::ios::binary)
      .seekp(static_cast<std::streamoff>(heap + 5 * 18 + 4))
      .put('x');
  const auto opened = open(path, {.block = 8, .vocabulary = -1});
  EXPECT_EQ(opened.status().code(), Code::kCorrupt);
  EXPECT_THAT(opened.status().message(), HasSubstr("sample 5"));
}

}  // namespace
}  // namespace hanji::data
