#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "hanji/base/status.h"

namespace hanji::data {

struct FolderSummary {
  int64_t num_images = 0;
  std::vector<std::string> classes;  ///< The folder's folders, by bytes; a label is a place here.
};

/// Writes the JPEG files of FOLDER/CLASS/ (and of folders in it) to a .beton file: the fields
/// `image`, the files' own bytes, and `label`. Nothing is decoded.
///
/// Result  images in the order of their paths' bytes: the same bytes for the same files. The
///         file's provenance has the names of the classes.
/// Cost    each file is read once; memory for the names and one page.
/// Errors  kNotFound; kInvalidArgument for an `out` that exists; kCorrupt naming up to ten files
///         that are no JPEGs or in no class. Nothing is written then.
Result<FolderSummary> write_image_folder(
    const std::filesystem::path& folder, const std::filesystem::path& out,
    const std::function<void(int64_t done, int64_t total)>& report_progress = {});

}  // namespace hanji::data
