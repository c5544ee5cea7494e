#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include "hanji/data/make_beton.h"

namespace hanji::data {

/// How the images of a converted file are stored; FFCV's write_mode.
enum class ImageStorage : uint8_t {
  kKeep,  ///< As they are.
  kRaw,
  kJpeg,
  kProportion,  ///< A share of them, drawn by number, as JPEG, the others raw.
  kSmart,       ///< As JPEG if the raw rows have more bytes than a limit, else raw.
};

struct ConvertOptions {
  ImageStorage images = ImageStorage::kKeep;
  /// 1 to 100, of images that are encoded. If set, JPEGs are encoded anew; else they keep their bytes
  /// where size and storage allow it, and raw images get 90.
  std::optional<int> quality = {};
  /// Gives each JPEG an index of its rows of blocks, so that those above a crop need not be read. Pixels
  /// stay.
  bool row_index = false;
  int64_t max_resolution = 0;      ///< Pixels of the longer side: larger images shrink. 0: any.
  double jpeg_share = 0.5;         ///< Of kProportion.
  uint64_t smart_bytes = 100'000;  ///< Of kSmart.
  uint64_t seed = 1;               ///< Of kProportion.
};

/// The samples of a file with its images stored in another way; other fields are copied.
///
/// Result  of kRaw and kJpeg the same bytes for the same file; the provenance is the file's with what
///         was converted.
/// Cost    reads each record and page once before the first sample.
/// Errors  those of BetonFile::open(); kInvalidArgument for options out of range, or for options of
///         images and a file without any. read(): those of BetonFile::read(), and of a JPEG that
///         cannot be decoded.
Result<BetonRecipe> converted_recipe(const std::filesystem::path& path,
                                     const ConvertOptions& options);

}  // namespace hanji::data
