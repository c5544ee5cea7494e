#include "hanji/plan/image_stages.h"

#include <gmock/gmock.h>

namespace hanji::plan {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::string stage_mistake(std::string_view text) {
  return parse_image_stages(text).status().message();
}

TEST(ImageStages, EveryStageWithItsValues) {
  const ImageStages all =
      parse_image_stages(
          "random_resized_crop(min_area = 0.2, max_ratio=2), flip(probability=0.25),"
          "translate(pixels=3), cutout(pixels = 9), normalise(mean = [.5, 0.25, 0], deviation "
          "= [1, 2, 3])")
          .or_throw();
  const auto crop = std::get<RandomResizedCrop>(all.crop);
  EXPECT_EQ(crop.min_area, 0.2);
  EXPECT_EQ(crop.max_area, 1);
  EXPECT_EQ(crop.max_ratio, 2);
  EXPECT_EQ(all.flip_probability, 0.25);
  EXPECT_EQ(all.translate_pixels, 3);
  EXPECT_EQ(all.cutout_pixels, 9);
  EXPECT_THAT(all.mean, testing::ElementsAre(0.5, 0.25, 0));
  EXPECT_THAT(all.deviation, testing::ElementsAre(1, 2, 3));
}

TEST(ImageStages, StagesThatAreNotNamedDoNothing) {
  const ImageStages crop = parse_image_stages("center_crop").or_throw();
  EXPECT_EQ(std::get<CenterCrop>(crop.crop).ratio, 0.875);
  EXPECT_EQ(crop.flip_probability, 0);
  EXPECT_EQ(crop.translate_pixels, 0);
  EXPECT_EQ(crop.cutout_pixels, 0);
  EXPECT_THAT(crop.mean, testing::Each(0));
  EXPECT_THAT(crop.deviation, testing::Each(1));
}

TEST(ImageStages, TheUsualOnesNormaliseByImageNet) {
  const ImageStages usual = parse_image_stages(kUsualImageStages).or_throw();
  EXPECT_EQ(usual.flip_probability, 0.5);
  EXPECT_EQ(usual.mean[0], 0.485);
}

TEST(ImageStages, AllMistakesAtOnce) {
  EXPECT_THAT(stage_mistake("center_crop(ratio = 2), blur, flip(chance = 1)"),
              AllOf(HasSubstr("center_crop.ratio is \"2\", but must be a number from 0.01 to 1"),
                    HasSubstr("\"blur\" is no stage; stages are random_resized_crop, center_crop"),
                    HasSubstr("flip has no value \"chance = 1\"; write probability = NUMBER")));
}

TEST(ImageStages, RejectsOrdersAndValuesThatMeanNothing) {
  EXPECT_THAT(stage_mistake(""), HasSubstr("\"\" is no stage"));
  EXPECT_THAT(stage_mistake("flip"), HasSubstr("the first stage is flip"));
  EXPECT_THAT(stage_mistake("center_crop, cutout, flip"), HasSubstr("flip comes twice or too"));
  EXPECT_THAT(stage_mistake("center_crop, random_resized_crop"), HasSubstr("twice or too late"));
  EXPECT_THAT(stage_mistake("center_crop(size = 64)"), HasSubstr("data.image_size"));
  EXPECT_THAT(stage_mistake("center_crop, translate(pixels = 1.5)"), HasSubstr("an integer"));
  EXPECT_THAT(stage_mistake("center_crop(ratio = nan)"), HasSubstr("must be a number"));
  EXPECT_THAT(stage_mistake("center_crop(ratio = 1"), HasSubstr("lacks a closing bracket"));
  EXPECT_THAT(stage_mistake("center_crop, normalise(mean = 1)"), HasSubstr("1 numbers"));
  EXPECT_THAT(stage_mistake("random_resized_crop(min_area = 0.9, max_area = 0.1)"),
              HasSubstr("above its maximum"));
}

}  // namespace
}  // namespace hanji::plan
