#pragma once

#include <cstdint>

#include "hanji/data/make_beton.h"

namespace hanji::data {

struct GeneratedFileOptions {
  int64_t count = 400;
  int64_t size = 96;  ///< Pixels of a side.
  int64_t classes = 10;
  uint64_t seed = 1;
};

/// The images of data.images = "generated" with their classes: the fields `image` (raw) and `label`.
/// A value v of a channel becomes round(85 (v + 1.5)).
/// Errors  kInvalidArgument for options that GeneratedImages rejects, or images too large for a page.
Result<BetonRecipe> generated_recipe(const GeneratedFileOptions& options);

}  // namespace hanji::data
