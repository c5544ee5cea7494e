#pragma once

#include <filesystem>
#include <span>

#include "hanji/data/make_beton.h"

namespace hanji::data {

/// The samples of WebDataset's shards: uncompressed tar archives, in which the files of a sample
/// follow each other and have one name up to the first dot. What is behind it is the field.
///
/// Fields are those of the first sample, in its order, named after the extension in small letters:
/// `jpg` (also jpeg: an image, its bytes kept), `cls`, `cls2`, `class`, `count`, `index`, `inx`, `id`
/// (an int), `json`, `npy` (an array of one type and shape), else bytes. Files without an extension,
/// those in a folder between two underscores, and those that is_metadata() names are in no sample.
/// Result  samples in the order of the shards as they are given; notes say what is in no sample, and where
///         a number is cut at its dot.
/// Cost    shards are mapped; memory for the names.
/// Errors  kNotFound; those of the archives: kCorrupt and kUnsupported with the shard and the byte;
///         kCorrupt for a sample that has a file twice, or files apart from each other. read(): kCorrupt for a sample that has other
///         fields than the first, and for values that are none of their field.
/// Source  webdataset: tariterators.py, autodecode.py.
Result<BetonRecipe> tar_recipe(std::span<const std::filesystem::path> shards);

}  // namespace hanji::data
