#include "hanji/data/beton_generated.h"

#include <gmock/gmock.h>

#include <cmath>

#include "hanji/base/file.h"
#include "hanji/data/batch.h"
#include "hanji/data/beton_file.h"
#include "hanji/data/generated_images.h"
#include "hanji/test/temporary_folder.h"

namespace hanji::data {
namespace {

TEST(GeneratedFile, HoldsTheGeneratedImagesAndTheirClasses) {
  const test::TemporaryFolder folder;
  const auto path = folder.path() / "x.beton";
  const auto recipe =
      generated_recipe({.count = 11, .size = 9, .classes = 4, .seed = 3}).or_throw();
  ASSERT_TRUE(make_beton(recipe, path).ok());
  const auto file = BetonFile::open(path).or_throw();
  ASSERT_EQ(file.num_samples(), 11);
  const auto images =
      GeneratedImages::create(
          {.seed = 3, .size = 9, .classes = 4, .count = 11, .validation_fraction = 0})
          .or_throw();
  layers::Batch batch;
  shape_batch(images.shape(), {0, 1}, batch);
  for (uint64_t i = 0; i < 11; ++i) {
    ASSERT_TRUE(images.read(Part::kTrain, static_cast<int64_t>(i), batch, 0).ok());
    EXPECT_EQ(file.read(i, 1).or_throw().integer, i % 4);
    const auto image = file.read(i, 0).or_throw();
    ASSERT_EQ(image.width, 9);
    ASSERT_EQ(image.height, 9);
    for (size_t pixel = 0; pixel < 81; ++pixel) {
      for (size_t channel = 0; channel < 3; ++channel) {
        const float value = batch.inputs.const_data_ptr<float>()[channel * 81 + pixel];
        EXPECT_EQ(static_cast<int>(image.bytes[3 * pixel + channel]),
                  std::lround(85 * (value + 1.5F)));
      }
    }
  }
}

TEST(GeneratedFile, RejectsSizesOutOfRangeInItsOwnWords) {
  for (const GeneratedFileOptions& wrong : {GeneratedFileOptions{.count = 0},
                                            {.count = -5},
                                            {.count = 1, .size = 5},
                                            {.count = 1, .size = 16385},
                                            {.count = 1, .classes = 1}}) {
    const Status status = generated_recipe(wrong).status();
    EXPECT_EQ(status.code(), Code::kInvalidArgument);
    EXPECT_THAT(status.message(), testing::HasSubstr("; take 1 image or more"));
  }
}

}  // namespace
}  // namespace hanji::data
