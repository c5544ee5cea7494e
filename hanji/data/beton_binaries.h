#pragma once

#include <filesystem>
#include <span>

#include "hanji/data/make_beton.h"

namespace hanji::data {

/// The images of known binary files: the fields `image`, raw, and `label`.
///
/// The files are CIFAR-10's (records of 3,073 bytes), CIFAR-100's (3,074; the fine label), or one of
/// MNIST's kind with images and one with their labels (IDX, in either order; gray becomes RGB).
/// Result  images in the order of the files.
/// Cost    files are mapped.
/// Errors  kNotFound; kCorrupt for sizes that fit no format, an IDX header that its file does not
///         have the bytes of, or other counts in a pair.
/// Source  cs.toronto.edu/~kriz/cifar.html; LeCun, Cortes, Burges, "The MNIST database".
Result<BetonRecipe> binary_recipe(std::span<const std::filesystem::path> files);

}  // namespace hanji::data
