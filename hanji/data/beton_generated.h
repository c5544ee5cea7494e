#pragma once

#include <cstdint>
#include <filesystem>

#include "hanji/base/status.h"

namespace hanji::data {

struct GeneratedFileOptions {
  int64_t count = 400;
  int64_t size = 96;  ///< Pixels of a side.
  int64_t classes = 10;
  uint64_t seed = 1;
};

/// Writes the images of data.images = "generated" with their classes to a .beton file: the fields
/// `image` (raw) and `label`. A value v of a channel becomes round(85 (v + 1.5)).
///
/// Result  the same bytes for the same options. `path` appears when it is whole.
/// Cost    one page in memory.
/// Errors  kInvalidArgument for options that GeneratedImages rejects, or a path that exists.
Status write_generated_file(const std::filesystem::path& path, const GeneratedFileOptions& options);

}  // namespace hanji::data
