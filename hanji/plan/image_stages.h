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

/// The steps from an image of a file to a sample, in the order of the members.
struct ImageStages {
  std::variant<RandomResizedCrop, CenterCrop> crop;
  double flip_probability = 0;   ///< Of mirroring left and right.
  int64_t translate_pixels = 0;  ///< Moves by up to so many pixels of the sample, each way.
  int64_t cutout_pixels = 0;     ///< Side of a square that gets the mean colour; 0: none.
  std::array<double, 3> mean = {0, 0, 0};  ///< Red, green, blue in [0, 1].
  std::array<double, 3> deviation = {1, 1, 1};
};

inline constexpr std::string_view kUsualImageStages = "random_resized_crop, flip, normalise";

/// Parses "random_resized_crop(min_area = 0.2), flip, normalise": names joined by commas, values in
/// brackets. The first stage is a crop; each is at most once there, in the order of ImageStages.
///
/// Errors  kInvalidArgument with all mistakes: unknown names, values out of range, another order.
Result<ImageStages> parse_image_stages(std::string_view text);

}  // namespace hanji::plan
