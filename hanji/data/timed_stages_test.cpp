#include "hanji/data/internal/timed_stages.h"

#include <gmock/gmock.h>

namespace hanji::data::internal {
namespace {

using testing::ElementsAre;

std::vector<TimedStage> parts_of(const char* stages, const UnnamedStages& unnamed = {}) {
  return timed_stages(plan::parse_image_stages(stages).or_throw(), unnamed);
}

std::vector<std::string> names_of(const std::vector<TimedStage>& parts) {
  std::vector<std::string> names;
  for (const TimedStage& one : parts) names.push_back(one.name);
  return names;
}

TEST(TimedStages, AreTheStagesOfAJobInTheOrderInWhichTheyAreDone) {
  EXPECT_THAT(names_of(parts_of("center_crop")), ElementsAre("read", "center_crop", "to floats"));
  EXPECT_THAT(names_of(parts_of("random_resized_crop, flip, vertical_flip, brightness, contrast, "
                                "saturation, hue, grayscale, translate, cutout, normalise, mixup",
                                {.decodes = true, .changes_tile = true})),
              ElementsAre("read", "decode", "random_resized_crop", "flip", "vertical_flip",
                          "brightness", "contrast", "saturation", "hue", "grayscale", "own stage",
                          "normalise", "translate", "cutout"));
}

TEST(TimedStages, EachHasTheStagesUpToItself) {
  const auto parts = parts_of("center_crop, flip, hue, translate(pixels = 3), normalise");
  ASSERT_THAT(names_of(parts),
              ElementsAre("read", "center_crop", "flip", "hue", "normalise", "translate"));
  EXPECT_EQ(parts[1].stages.flip_probability, 0);
  EXPECT_EQ(parts[2].stages.flip_probability, 0.5);
  EXPECT_EQ(parts[2].stages.colour.hue, 0);
  EXPECT_EQ(parts[3].stages.colour.hue, 0.1);
  EXPECT_EQ(parts[4].stages.translate_pixels, 0);
  EXPECT_EQ(parts[5].stages.translate_pixels, 3);
  EXPECT_EQ(parts[3].until, MadeUntil::kResized);
  EXPECT_EQ(parts[5].until, MadeUntil::kWritten);
  for (const TimedStage& one : parts) {
    EXPECT_TRUE(std::holds_alternative<plan::CenterCrop>(one.stages.crop)) << one.name;
  }
}

}  // namespace
}  // namespace hanji::data::internal
