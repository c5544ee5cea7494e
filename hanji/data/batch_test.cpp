#include "hanji/data/batch.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <numeric>

#include "hanji/data/samples.h"

namespace hanji::data {
namespace {

TokenSamples counting_samples(int64_t vocabulary = 1000) {
  auto ids = std::make_shared<std::vector<uint16_t>>(1000);
  std::iota(ids->begin(), ids->end(), uint16_t{0});
  const auto bytes = std::as_bytes(std::span<const uint16_t>(*ids));
  return TokenSamples::create(TokenSource(ids, bytes, TokenWidth::kUInt16),
                              {.block = 8, .vocabulary = vocabulary})
      .or_throw();
}

Loader loader_of(const TokenSamples& samples) {
  return Loader::create({.seed = 1,
                         .num_samples = samples.num_train(),
                         .global_batch = 6,
                         .share = {2, 6},
                         .micro_batch = 3})
      .or_throw();
}

TEST(ReadBatch, HoldsTheLoadersSamplesInOrder) {
  const TokenSamples samples = counting_samples();
  const Loader loader = loader_of(samples);
  layers::Batch batch;
  read_batch(samples, loader, 5, {2, 5}, batch);
  EXPECT_EQ(batch.inputs.sizes(), (std::vector<int64_t>{3, 8}));
  EXPECT_EQ(batch.size(), 3);
  for (int64_t row = 0; row < 3; ++row) {
    const at::Tensor expected = at::arange(8) + loader.sample(5, 2 + row) * 8;
    EXPECT_TRUE(at::equal(batch.inputs[row], expected));
    EXPECT_TRUE(at::equal(batch.targets[row], expected + 1));
  }
}

TEST(ReadBatch, UsesItsTensorsAgain) {
  const TokenSamples samples = counting_samples();
  const Loader loader = loader_of(samples);
  layers::Batch batch;
  read_batch(samples, loader, 0, {2, 5}, batch);
  const void* before = batch.inputs.data_ptr();
  read_batch(samples, loader, 1, {2, 5}, batch);
  EXPECT_EQ(batch.inputs.data_ptr(), before);
  read_batch(samples, loader, 1, {5, 6}, batch);
  EXPECT_EQ(batch.inputs.size(0), 1);
}

TEST(ReadBatch, ThrowsForATokenBeyondTheVocabulary) {
  const TokenSamples samples = counting_samples(4);
  layers::Batch batch;
  EXPECT_THROW(read_batch(samples, loader_of(samples), 0, {2, 5}, batch), Error);
}

TEST(ReadValidationBatch, SpreadsItsSamplesWhateverTheSplit) {
  const TokenSamples samples = counting_samples();
  ASSERT_EQ(samples.num_validation(), 12);
  layers::Batch whole;
  read_validation_batch(samples, 4, {0, 4}, whole);
  EXPECT_TRUE(at::equal(whole.inputs.select(1, 0), 900 + 24 * at::arange(4)));
  layers::Batch part;
  read_validation_batch(samples, 4, {2, 4}, part);
  EXPECT_TRUE(at::equal(part.inputs, whole.inputs.slice(0, 2, 4)));
}

}  // namespace
}  // namespace hanji::data
