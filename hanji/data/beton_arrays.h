#pragma once

#include <filesystem>
#include <span>
#include <string>

#include "hanji/data/make_beton.h"

namespace hanji::data {

/// A .npy file of a sample per element of its first dimension.
struct NamedArray {
  std::string name;  ///< Of the field.
  std::filesystem::path path;
};

/// The elements of numpy arrays of one length: a field per array.
///
/// An array of one dimension of integers (or bools) is an int, of floats (of 4 or 8 bytes) a float;
/// one of bytes of shape [n, height, width, 3] a raw image; any other an ndarray of the element's
/// shape.
/// Cost    files are mapped.
/// Errors  kNotFound; kCorrupt and kUnsupported, naming the file, for headers and sizes;
///         kInvalidArgument for arrays of different lengths or without elements.
Result<BetonRecipe> array_recipe(std::span<const NamedArray> arrays);

}  // namespace hanji::data
