#include "hanji/data/internal/image_view.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <set>

namespace hanji::data::internal {
namespace {

plan::ImageStages stages_of(std::string_view text) {
  return plan::parse_image_stages(text).or_throw();
}

TEST(ImageView, RandomPartsLieInTheImageWithAreaAndRatioInRange) {
  const plan::ImageStages stages = stages_of("random_resized_crop(min_area = 0.2)");
  std::set<int64_t> places;
  for (uint64_t key = 0; key < 2000; ++key) {
    const PixelBox box = draw_view(stages, {500, 375}, 224, key).crop;
    EXPECT_GE(box.x, 0);
    EXPECT_GE(box.y, 0);
    EXPECT_LE(box.x + box.width, 500);
    EXPECT_LE(box.y + box.height, 375);
    const auto width = static_cast<double>(box.width), height = static_cast<double>(box.height);
    EXPECT_GT(width * height, 0.195 * 500 * 375);
    EXPECT_GT(width / height, 0.74);
    EXPECT_LT(width / height, 1.35);
    places.insert(box.x);
  }
  EXPECT_GT(places.size(), 100U);
}

TEST(ImageView, AreasAreEvenlySpread) {
  const plan::ImageStages stages = stages_of("random_resized_crop(min_area=0.1, max_area=0.5)");
  double sum = 0;
  constexpr int kViews = 4000;
  for (uint64_t key = 0; key < kViews; ++key) {
    const PixelBox box = draw_view(stages, {1000, 1000}, 224, key).crop;
    sum += static_cast<double>(box.width * box.height) / 1e6;
  }
  EXPECT_NEAR(sum / kViews, 0.3, 0.01) << "0.4 / sqrt(12 x 4000) = 0.0018 is one deviation";
}

TEST(ImageView, AnImageThatNoPartFitsGivesItsLargestAllowedOne) {
  const PixelBox box =
      draw_view(stages_of("random_resized_crop(min_area = 1)"), {1000, 10}, 32, 1).crop;
  EXPECT_EQ(box.height, 10);
  EXPECT_EQ(box.width, 13) << "10 x 4 / 3";
  EXPECT_EQ(box.x, 493);
}

TEST(ImageView, OnePixelIsAnImage) {
  for (const auto text : {plan::kUsualImageStages, std::string_view("center_crop")}) {
    const PixelBox box = draw_view(stages_of(text), {1, 1}, 32, 5).crop;
    EXPECT_EQ(box.width, 1);
    EXPECT_EQ(box.height, 1);
    EXPECT_EQ(box.x + box.y, 0);
  }
}

TEST(ImageView, TheCentralSquareHasTheStagesRatio) {
  const PixelBox usual = central_view(stages_of(plan::kUsualImageStages), {500, 400}).crop;
  EXPECT_EQ(usual.width, 350);
  EXPECT_EQ(usual.height, 350);
  EXPECT_EQ(usual.x, 75);
  EXPECT_EQ(usual.y, 25);
  EXPECT_EQ(central_view(stages_of("center_crop(ratio = 1)"), {500, 400}).crop.width, 400);
}

TEST(ImageView, ValidationIsNeitherMirroredNorMovedNorCut) {
  const ImageView view =
      central_view(stages_of("center_crop, flip(probability = 1), translate, cutout"), {9, 9});
  EXPECT_FALSE(view.is_flipped);
  EXPECT_EQ(view.shift_x, 0);
  EXPECT_EQ(view.hole.width, 0);
}

TEST(ImageView, FlipsMovesAndHolesSpreadOverTheirRange) {
  const plan::ImageStages stages = stages_of(
      "center_crop, flip(probability = 0.25), vertical_flip, translate(pixels = 2), "
      "cutout(pixels = 8)");
  int flips = 0, vertical_flips = 0, both = 0;
  std::set<int64_t> moves, holes;
  for (uint64_t key = 0; key < 4000; ++key) {
    const ImageView view = draw_view(stages, {32, 32}, 32, key);
    flips += view.is_flipped ? 1 : 0;
    vertical_flips += view.is_vertically_flipped ? 1 : 0;
    both += view.is_flipped && view.is_vertically_flipped ? 1 : 0;
    moves.insert(view.shift_x);
    moves.insert(view.shift_y);
    holes.insert(view.hole.x);
    EXPECT_EQ(view.hole.width, 8);
    EXPECT_LE(view.hole.y + view.hole.height, 32);
  }
  EXPECT_NEAR(flips, 1000, 110) << "four deviations of sqrt(4000 x 0.25 x 0.75)";
  EXPECT_NEAR(vertical_flips, 2000, 130) << "four of sqrt(4000 / 4)";
  EXPECT_NEAR(both, 500, 85) << "drawn apart: four of sqrt(4000 x 0.125 x 0.875)";
  EXPECT_THAT(moves, testing::ElementsAre(-2, -1, 0, 1, 2));
  EXPECT_EQ(holes.size(), 25U);
}

TEST(ImageView, FactorsOfColoursSpreadOverTheirRange) {
  const plan::ImageStages stages =
      stages_of("center_crop, brightness(amount = 0.5), saturation(amount = 1), grayscale");
  int32_t least = ColourFactors::kOne, most = least, num_gray = 0;
  for (uint64_t key = 0; key < 4000; ++key) {
    const ColourFactors factors = draw_view(stages, {9, 9}, 8, key).colour;
    least = std::min(least, factors.brightness);
    most = std::max(most, factors.brightness);
    EXPECT_EQ(factors.contrast, ColourFactors::kOne) << "no stage";
    num_gray += factors.saturation == 0 ? 1 : 0;
  }
  EXPECT_NEAR(least, 0.5 * ColourFactors::kOne, 10);
  EXPECT_NEAR(most, 1.5 * ColourFactors::kOne, 10);
  EXPECT_NEAR(num_gray, 800, 130) << "five deviations of sqrt(4000 x 0.2 x 0.8)";
  EXPECT_TRUE(draw_view(stages_of("center_crop"), {9, 9}, 8, 1).colour.change_nothing());
}

TEST(ImageView, HuesSpreadOverTheirRange) {
  float least = 0, most = 0;
  for (uint64_t key = 0; key < 4000; ++key) {
    const float sextants =
        draw_view(stages_of("center_crop, hue(amount = 0.25)"), {9, 9}, 8, key).colour.hue_sextants;
    least = std::min(least, sextants);
    most = std::max(most, sextants);
  }
  EXPECT_NEAR(least, -1.5, 0.01);
  EXPECT_NEAR(most, 1.5, 0.01);
}

TEST(ImageView, AHoleIsAtMostTheSample) {
  const ImageView view = draw_view(stages_of("center_crop, cutout(pixels = 64)"), {9, 9}, 16, 3);
  EXPECT_EQ(view.hole.width, 16);
  EXPECT_EQ(view.hole.x, 0);
}

}  // namespace
}  // namespace hanji::data::internal
