#include "hanji/data/internal/image_view.h"

#include <algorithm>
#include <cmath>

#include "hanji/base/random.h"

namespace hanji::data::internal {
namespace {

using base::Philox;

constexpr int kAttempts = 10;
// Counters of the draws; those of kAttempts at a crop follow kFirstAttempt.
enum Draw : uint64_t { kPlace, kHole, kFirstAttempt, kColour = 64, kHue };

double in_range(double low, double high, uint32_t word) {
  return low + (high - low) * base::uniform(word);
}

/// One of 0 to `most`.
int64_t up_to(int64_t most, uint32_t word) {
  return static_cast<int64_t>(base::uniform(word) * static_cast<double>(most + 1));
}

PixelBox centered(ImageSize image, int64_t width, int64_t height) {
  return {(image.width - width) / 2, (image.height - height) / 2, width, height};
}

PixelBox central_square(ImageSize image, double ratio) {
  const double side = ratio * static_cast<double>(std::min(image.width, image.height));
  const int64_t pixels = std::max<int64_t>(1, std::llround(side));
  return centered(image, pixels, pixels);
}

/// If no attempt fits: the largest central part whose ratio is allowed.
PixelBox largest_part(const plan::RandomResizedCrop& crop, ImageSize image) {
  const auto width = static_cast<double>(image.width), height = static_cast<double>(image.height);
  const double ratio = std::clamp(width / height, crop.min_ratio, crop.max_ratio);
  const auto rounded = [](double size, int64_t most) {
    return std::clamp<int64_t>(std::llround(size), 1, most);
  };
  return centered(image, rounded(std::min(width, height * ratio), image.width),
                  rounded(std::min(height, width / ratio), image.height));
}

PixelBox random_part(const plan::RandomResizedCrop& crop, ImageSize image, uint64_t key) {
  const double area = static_cast<double>(image.width) * static_cast<double>(image.height);
  for (uint64_t attempt = 0; attempt < kAttempts; ++attempt) {
    const auto words = Philox::draw(key, 0, kFirstAttempt + attempt);
    const double part = area * in_range(crop.min_area, crop.max_area, words[0]);
    const double ratio =
        std::exp(in_range(std::log(crop.min_ratio), std::log(crop.max_ratio), words[1]));
    const int64_t width = std::llround(std::sqrt(part * ratio));
    const int64_t height = std::llround(std::sqrt(part / ratio));
    if (width < 1 || height < 1 || width > image.width || height > image.height) continue;
    return {up_to(image.width - width, words[2]), up_to(image.height - height, words[3]), width,
            height};
  }
  return largest_part(crop, image);
}

ColourFactors draw_colours(const plan::ColourAmounts& amounts, uint64_t key) {
  const auto words = Philox::draw(key, 0, kColour);
  const auto factor = [](double amount, uint32_t word) {
    const double drawn = in_range(std::max(0.0, 1 - amount), 1 + amount, word);
    return static_cast<int32_t>(std::lround(drawn * ColourFactors::kOne));
  };
  const bool is_gray = base::uniform(words[3]) < amounts.gray_probability;
  const double turn = in_range(-amounts.hue, amounts.hue, Philox::draw(key, 0, kHue)[0]);
  return {.brightness = factor(amounts.brightness, words[0]),
          .contrast = factor(amounts.contrast, words[1]),
          .saturation = is_gray ? 0 : factor(amounts.saturation, words[2]),
          .hue_sextants = static_cast<float>(6 * turn)};
}

}  // namespace

ImageView draw_view(const plan::ImageStages& stages, ImageSize image, int64_t size, uint64_t key) {
  ImageView view;
  if (const auto* crop = std::get_if<plan::RandomResizedCrop>(&stages.crop)) {
    view.crop = random_part(*crop, image, key);
  } else {
    view.crop = central_view(stages, image).crop;
  }
  const auto words = Philox::draw(key, 0, kPlace);
  view.is_flipped = base::uniform(words[0]) < stages.flip_probability;
  view.is_vertically_flipped = base::uniform(words[3]) < stages.vertical_flip_probability;
  view.colour = draw_colours(stages.colour, key);
  const int64_t reach = std::min(stages.translate_pixels, size);
  view.shift_x = up_to(2 * reach, words[1]) - reach;
  view.shift_y = up_to(2 * reach, words[2]) - reach;
  if (const int64_t side = std::min(stages.cutout_pixels, size); side > 0) {
    const auto places = Philox::draw(key, 0, kHole);
    view.hole = {up_to(size - side, places[0]), up_to(size - side, places[1]), side, side};
  }
  return view;
}

ImageView central_view(const plan::ImageStages& stages, ImageSize image) {
  const auto* center = std::get_if<plan::CenterCrop>(&stages.crop);
  return {.crop = central_square(image, (center ? *center : plan::CenterCrop()).ratio)};
}

}  // namespace hanji::data::internal
