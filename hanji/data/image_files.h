#pragma once

#include <filesystem>

#include "hanji/data/make_beton.h"

namespace hanji::data {

/// Writes the images of a .beton file to FOLDER/CLASS/NUMBER.jpg, JPEGs as they are, and raw ones to
/// .png. CLASS is the name that the file's provenance has, or the label; without an int field images
/// are in FOLDER itself.
///
/// Result  until all are written, the folder is beside its name, as .FOLDER.part, and a later call
///         continues there.
/// Errors  kInvalidArgument for a folder that exists, or an interrupted one of another file;
///         kUnsupported for a file without images; those of BetonFile::read(), with the sample.
Result<MadeBeton> write_image_files(const std::filesystem::path& file,
                                    const std::filesystem::path& folder,
                                    const MakeBetonOptions& options = {});

}  // namespace hanji::data
