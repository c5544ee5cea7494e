#include "hanji/data/generated_images.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include "hanji/data/batch.h"

namespace hanji::data {
namespace {

GeneratedImages images(ImageOptions options = {}) {
  return GeneratedImages::create(options).or_throw();
}

struct Sample {
  at::Tensor image;
  int64_t label = 0;
};

Sample read(const GeneratedImages& source, int64_t index, Part part = Part::kTrain) {
  const SampleShape shape = source.shape();
  layers::Batch batch{.inputs = at::empty(shape.inputs, shape.dtype).unsqueeze(0),
                      .targets = at::empty({1}, at::kLong)};
  throw_if_error(source.read(part, index, batch, 0));
  return {batch.inputs[0], batch.targets.item<int64_t>()};
}

TEST(GeneratedImages, EveryClassComesEquallyOften) {
  const GeneratedImages source = images({.classes = 7, .count = 700, .validation_fraction = 0.5});
  std::vector<int> seen(7);
  for (int64_t i = 0; i < source.num_train(); ++i) ++seen[read(source, i).label];
  EXPECT_THAT(seen, testing::Each(50));
}

TEST(GeneratedImages, ASampleDependsOnSeedAndNumberAlone) {
  const GeneratedImages source = images({.seed = 3});
  const Sample one = read(source, 17);
  read(source, 4);
  EXPECT_TRUE(at::equal(read(source, 17).image, one.image));
  EXPECT_TRUE(at::equal(read(images({.seed = 3, .count = 100}), 17).image, one.image));
  EXPECT_FALSE(at::equal(read(images({.seed = 4}), 17).image, one.image));
  EXPECT_FALSE(at::equal(read(source, 27).image, one.image)) << "of the same class";
  EXPECT_EQ(read(source, 27).label, one.label);
}

TEST(GeneratedImages, TheValidationPartGoesOnCounting) {
  const GeneratedImages source = images({.count = 100, .validation_fraction = 0.2});
  EXPECT_EQ(source.num_train(), 80);
  EXPECT_EQ(source.num_validation(), 20);
  const Sample validation = read(source, 3, Part::kValidation);
  EXPECT_TRUE(at::equal(validation.image, read(images(), 83).image));
  EXPECT_EQ(validation.label, 83 % 10);
}

TEST(GeneratedImages, AnySizeAndNumberOfClasses) {
  for (const int64_t size : {8, 33, 224}) {
    const Sample one = read(images({.size = size, .classes = 1000}), 999);
    EXPECT_EQ(one.image.sizes(), (std::vector<int64_t>{3, size, size}));
    EXPECT_EQ(one.label, 999);
    EXPECT_LT(one.image.abs().max().item<float>(), 1.5F);
    EXPECT_GT(one.image.std().item<float>(), 0.05F);
  }
}

/// Classes of one shape differ in colour, and classes of one colour in where it is.
TEST(GeneratedImages, ClassesLookDifferent) {
  const GeneratedImages source = images({.size = 32, .classes = 10});
  const auto mean_of = [&](int64_t label) {
    at::Tensor sum = at::zeros({3, 32, 32});
    for (int64_t i = 0; i < 200; ++i) sum += read(source, label + 10 * i).image;
    return sum / 200;
  };
  for (int64_t label = 0; label < 10; ++label) {
    for (int64_t other = 0; other < label; ++other) {
      EXPECT_GT((mean_of(label) - mean_of(other)).abs().max().item<float>(), 0.2F)
          << label << " " << other;
    }
  }
}

TEST(GeneratedImages, FillABatchInTheLoadersOrder) {
  const GeneratedImages source = images();
  const Loader loader = Loader::create({.seed = 1,
                                        .num_samples = source.num_train(),
                                        .global_batch = 8,
                                        .share = {2, 6},
                                        .micro_batch = 4})
                            .or_throw();
  layers::Batch batch;
  read_batch(source, loader, 3, {2, 6}, batch);
  EXPECT_EQ(batch.inputs.sizes(), (std::vector<int64_t>{4, 3, 32, 32}));
  EXPECT_EQ(batch.targets.sizes(), (std::vector<int64_t>{4}));
  EXPECT_EQ(batch.num_valid, 4);
  const Sample first = read(source, loader.sample(3, 2));
  EXPECT_TRUE(at::equal(batch.inputs[0], first.image));
  EXPECT_EQ(batch.targets[0].item<int64_t>(), first.label);
}

TEST(GeneratedImages, RefuseWhatCannotBeDrawn) {
  EXPECT_FALSE(GeneratedImages::create({.size = 7}).ok());
  EXPECT_FALSE(GeneratedImages::create({.classes = 1}).ok());
  EXPECT_FALSE(GeneratedImages::create({.count = 1}).ok());
  EXPECT_FALSE(GeneratedImages::create({.validation_fraction = 1}).ok());
  const GeneratedImages source = images({.count = 10});
  layers::Batch batch{.inputs = at::empty({1, 3, 32, 32}), .targets = at::empty({1}, at::kLong)};
  EXPECT_EQ(source.read(Part::kTrain, 9, batch, 0).code(), Code::kInvalidArgument);
}

TEST(GeneratedImages, OtherOptionsHaveAnotherChecksum) {
  const uint64_t one = images().checksum();
  EXPECT_EQ(images().checksum(), one);
  EXPECT_NE(images({.seed = 2}).checksum(), one);
  EXPECT_NE(images({.size = 16}).checksum(), one);
}

}  // namespace
}  // namespace hanji::data
