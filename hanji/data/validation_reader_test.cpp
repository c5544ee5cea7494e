#include "hanji/data/validation_reader.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include "hanji/data/batch.h"
#include "hanji/data/generated_images.h"
#include "hanji/data/loader.h"

namespace hanji::data {
namespace {

GeneratedImages some_images() {
  return GeneratedImages::create(
             {.seed = 3, .size = 8, .classes = 5, .count = 100, .validation_fraction = 0.4})
      .or_throw();
}

TEST(ValidationReader, GivesTheBatchesOfReadValidationBatchForAnyShareAndThreads) {
  const GeneratedImages images = some_images();
  for (const layout::Range share : {layout::Range{0, 30}, {7, 24}, {29, 30}}) {
    for (const plan::Reading reading :
         {plan::Reading{0, 0}, plan::Reading{1, 1}, plan::Reading{3, 0}, plan::Reading{2, 3}}) {
      ValidationReader reader(images, 30, share, 4, reading);
      for (const layout::Range cut : cut(share, 4)) {
        const layers::Batch found = reader.read(cut);
        layers::Batch expected;
        read_validation_batch(images, 30, cut, expected);
        EXPECT_TRUE(at::equal(found.inputs, expected.inputs)) << cut.begin;
        EXPECT_TRUE(at::equal(found.targets, expected.targets));
        EXPECT_EQ(found.positions, cut);
        EXPECT_EQ(found.num_valid, expected.num_valid);
      }
    }
  }
}

TEST(ValidationReader, ReadsEachSampleOnce) {
  struct Counting final : Source {
    int64_t count(Part) const override { return 10; }
    SampleShape shape() const override { return {.inputs = {1}, .targets = {}}; }
    uint64_t checksum() const override { return 0; }
    Status read(Part part, int64_t index, layers::Batch&, int64_t) const override {
      EXPECT_EQ(part, Part::kValidation);
      ++reads[static_cast<size_t>(index)];
      return index == 9 ? base::corrupt("sample 9") : Status();
    }
    mutable std::array<std::atomic<int>, 10> reads = {};
  };
  const Counting source;
  {
    ValidationReader reader(source, 10, {0, 9}, 4, {2, 1});
    for (const layout::Range cut : cut({0, 9}, 4)) reader.read(cut);
  }
  for (size_t i = 0; i < 9; ++i) EXPECT_EQ(source.reads[i], 1) << i;
  ValidationReader reader(source, 10, {8, 10}, 4, {2, 1});
  EXPECT_THAT(
      [&] {
        reader.read({8, 10});
      },
      testing::ThrowsMessage<Error>(testing::HasSubstr("sample 9")));
}

}  // namespace
}  // namespace hanji::data
