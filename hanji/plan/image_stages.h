#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>

#include "hanji/base/status.h"

namespace hanji::plan {

/// A random part of an image, resized to the sample's square.
/// Source  torchvision.transforms.RandomResizedCrop; Szegedy et al., CVPR 2015.
struct RandomResizedCrop {
  double min_area = 0.08;  ///< Of the image.
  double max_area = 1;
  double min_ratio = 0.75;  ///< Width by height of the part.
  double max_ratio = 4.0 / 3;
};

/// The central square, resized.
struct CenterCrop {
  double ratio = 0.875;  ///< Of the image's shorter side: 224 of 256.
};

/// By how much the colours of a sample vary: each factor is drawn evenly from
/// [max(0, 1 - amount), 1 + amount], and 0 changes nothing.
///
/// Of a level v of red, green or blue, 0 to 255, in this order, each result rounded and clamped:
///   brightness  v * factor
///   contrast    v * factor + m * (1 - factor), m the mean gray of the sample so far
///   saturation  v * factor + gray * (1 - factor), gray that of the pixel so far
///   hue         the pixel's angle of HSV moved by a part of a turn drawn from [-hue, hue]
/// gray is 0.299 red + 0.587 green + 0.114 blue.
/// Source  torchvision.transforms.ColorJitter, whose order is random; Pillow, ImageEnhance.
struct ColourAmounts {
  double brightness = 0;
  double contrast = 0;
  double saturation = 0;
  double hue = 0;
  double gray_probability = 0;  ///< Of a saturation of 0 instead.
};

/// A sample and its classes mixed with those of its partner: the weight of the sample itself is drawn
/// from Beta(alpha, alpha).
struct Mixing {
  double alpha = 1;
  double probability = 0;  ///< Of mixing a sample.
};

/// The steps from an image of a file to a sample, in the order of the members.
struct ImageStages {
  std::variant<RandomResizedCrop, CenterCrop> crop;
  double flip_probability = 0;           ///< Of mirroring left and right.
  double vertical_flip_probability = 0;  ///< Of mirroring up and down.
  ColourAmounts colour;
  int64_t translate_pixels = 0;  ///< Moves by up to so many pixels of the sample, each way.
  int64_t cutout_pixels = 0;     ///< Side of a square that gets the mean colour; 0: none.
  std::array<double, 3> mean = {0, 0, 0};  ///< Red, green, blue in [0, 1].
  std::array<double, 3> deviation = {1, 1, 1};
  /// Every pixel is weight * own + (1 - weight) * partner's. Source: Zhang et al., arXiv:1710.09412.
  Mixing mixup;
  /// A box of 1 - weight of the area is the partner's, with the place and clipping of the source: Yun
  /// et al., arXiv:1905.04899. A sample is mixed by at most one of both.
  Mixing cutmix;

  bool mixes() const { return mixup.probability > 0 || cutmix.probability > 0; }
};

inline constexpr std::string_view kUsualImageStages = "random_resized_crop, flip, normalise";

/// Parses "random_resized_crop(min_area = 0.2), flip, normalise": names joined by commas, values in
/// brackets. The first stage is a crop; each is at most once there, in the order of ImageStages.
///
/// Errors  kInvalidArgument with all mistakes: unknown names, values out of range, another order.
Result<ImageStages> parse_image_stages(std::string_view text);

}  // namespace hanji::plan
