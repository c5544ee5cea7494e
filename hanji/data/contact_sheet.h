#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include "hanji/base/status.h"
#include "hanji/plan/image_stages.h"

namespace hanji::data {

struct SheetOptions {
  int64_t count = 64;   ///< Images, or rows with augmentation: as many as there are at most.
  int64_t columns = 8;  ///< Images beside each other.
  int64_t cell = 96;    ///< Pixels of an image's side; augmented samples have as many or more.
  /// Called after each cell with the number of those that are done; false ends early.
  std::function<bool(int64_t done, int64_t total)> proceed = {};
};

/// How a job makes samples of the images.
struct SheetSamples {
  plan::ImageStages stages;
  int64_t size = 32;  ///< Pixels of a side.
  uint64_t seed = 1;
};

/// A PNG of images that are spread evenly over a file of labelled images, whole, each above its
/// number and its class.
///
/// Cost    decodes so many images.
/// Errors  those of BetonFile::open() and of the images, with the sample; kUnsupported for a file
///         without an image; kInvalidArgument for a sheet of more than 2^28 pixels; kCancelled if it
///         ended early.
Result<std::string> contact_sheet(const std::filesystem::path& file, const SheetOptions& options);

/// A PNG of what a model sees: a row for each of `count` samples, first the whole image, then the
/// sample in epochs 0, 1, ... of a run. Its pixels are the sample's, before normalisation; those of
/// samples smaller than half a cell are squares of several pixels. Cells are as wide as their texts.
/// Errors  as above, and those of BetonImages.
Result<std::string> augmented_sheet(const std::filesystem::path& file, const SheetSamples& samples,
                                    const SheetOptions& options);

}  // namespace hanji::data
