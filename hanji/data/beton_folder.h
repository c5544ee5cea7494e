#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "hanji/data/make_beton.h"

namespace hanji::data {

/// The JPEG files of FOLDER/CLASS/ (and of folders in it): the fields `image`, the files' own bytes,
/// and `label`, the place of the class among the sorted names. Files named .png become raw images. A
/// class may be a link to a folder. What list_data() leaves out is neither class nor image.
///
/// Result  images in the order of their paths' bytes; the provenance has the names of the classes, the notes
///         what was left out.
/// Cost    memory for the names.
/// Errors  kNotFound; kInvalidArgument for a file in no class, for what is neither a
///         file nor a folder, such as a link to nothing, and for classes without a file, as
///         torchvision's ImageFolder rejects them. read(): kCorrupt and kUnsupported for files that
///         are no JPEGs that hanji decodes, or no PNGs of at most 8 bits.
Result<BetonRecipe> folder_recipe(const std::filesystem::path& folder);

/// JSON for the provenance of labelled images.
std::string class_provenance(const std::string& from, const std::vector<std::string>& classes);

}  // namespace hanji::data
