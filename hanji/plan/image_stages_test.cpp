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
          "vertical_flip(probability=0.75), brightness(amount=0.1), contrast(amount=0.2),"
          "saturation(amount=0.3), hue(amount = 0.05),"
          "grayscale(probability=0.4), translate(pixels=3), cutout(pixels = 9),"
          "normalise(mean = [.5, 0.25, 0], deviation = [1, 2, 3]),"
          "mixup(alpha = 0.8, probability = 0.25), cutmix(probability = 0.75)")
          .or_throw();
  const auto crop = std::get<RandomResizedCrop>(all.crop);
  EXPECT_EQ(crop.min_area, 0.2);
  EXPECT_EQ(crop.max_area, 1);
  EXPECT_EQ(crop.max_ratio, 2);
  EXPECT_EQ(all.flip_probability, 0.25);
  EXPECT_EQ(all.vertical_flip_probability, 0.75);
  EXPECT_EQ(all.translate_pixels, 3);
  EXPECT_EQ(all.cutout_pixels, 9);
  EXPECT_THAT(all.mean, testing::ElementsAre(0.5, 0.25, 0));
  EXPECT_THAT(all.deviation, testing::ElementsAre(1, 2, 3));
  EXPECT_EQ(all.colour.brightness, 0.1);
  EXPECT_EQ(all.colour.contrast, 0.2);
  EXPECT_EQ(all.colour.saturation, 0.3);
  EXPECT_EQ(all.colour.hue, 0.05);
  EXPECT_EQ(all.colour.gray_probability, 0.4);
  EXPECT_EQ(all.mixup.alpha, 0.8);
  EXPECT_EQ(all.mixup.probability, 0.25);
  EXPECT_EQ(all.cutmix.alpha, 1);
  EXPECT_EQ(all.cutmix.probability, 0.75);
}

TEST(ImageStages, StagesThatAreNotNamedDoNothing) {
  const ImageStages crop = parse_image_stages("center_crop").or_throw();
  EXPECT_EQ(std::get<CenterCrop>(crop.crop).ratio, 0.875);
  EXPECT_EQ(crop.flip_probability, 0);
  EXPECT_EQ(crop.vertical_flip_probability, 0);
  EXPECT_EQ(crop.colour.hue, 0);
  EXPECT_EQ(crop.translate_pixels, 0);
  EXPECT_EQ(crop.cutout_pixels, 0);
  EXPECT_THAT(crop.mean, testing::Each(0));
  EXPECT_THAT(crop.deviation, testing::Each(1));
  EXPECT_EQ(crop.colour.brightness + crop.colour.contrast + crop.colour.saturation, 0);
  EXPECT_EQ(crop.colour.gray_probability, 0);
  EXPECT_FALSE(crop.mixes());
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

TEST(ImageStages, AnUnknownNameIsOneMistakeAndNotOneOfTheOrderToo) {
  const std::string mistake = stage_mistake("crop, flip(probability = 2), blur");
  EXPECT_THAT(mistake, testing::StartsWith("\"crop\" is no stage; stages are random_resized_crop"));
  EXPECT_THAT(mistake, HasSubstr("; flip.probability is \"2\""));
  EXPECT_THAT(mistake, testing::EndsWith("; \"blur\" is no stage"));
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
  EXPECT_THAT(stage_mistake("center_crop, saturation, contrast"), HasSubstr("twice or too late"));
  EXPECT_THAT(stage_mistake("center_crop, brightness(amount = 1.5)"), HasSubstr("from 0 to 1"));
  EXPECT_THAT(stage_mistake("center_crop, hue(amount = 0.6)"), HasSubstr("from 0 to 0.5"));
  EXPECT_THAT(stage_mistake("center_crop, mixup(alpha = 0)"), HasSubstr("from 0.01 to 4"));
}

TEST(ImageStages, ASampleIsMixedOnce) {
  EXPECT_THAT(stage_mistake("center_crop, mixup, cutmix"), HasSubstr("probability is 2"));
  EXPECT_TRUE(parse_image_stages("center_crop, cutmix").or_throw().mixes());
  EXPECT_FALSE(parse_image_stages("center_crop, cutmix(probability = 0)").or_throw().mixes());
}

}  // namespace
}  // namespace hanji::plan
