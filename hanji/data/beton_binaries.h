#pragma once

#include <cstdint>
#include <filesystem>
#include <span>

#include "hanji/base/status.h"

namespace hanji::data {

/// Writes the images of known binary files to a .beton file: the fields `image`, raw, and `label`.
///
/// The files are CIFAR-10's (records of 3,073 bytes), CIFAR-100's (3,074; the fine label), or one of
/// MNIST's kind with images and one with their labels (IDX, in either order; gray becomes RGB).
/// Result  the number of images, in the order of the files; the same bytes for the same files.
/// Cost    files are mapped; one page in memory.
/// Errors  kNotFound; kInvalidArgument for an `out` that exists; kCorrupt for sizes that fit no
///         format, an IDX header that its file does not have the bytes of, or other counts in a pair.
///         Nothing is written then.
/// Source  cs.toronto.edu/~kriz/cifar.html; LeCun, Cortes, Burges, "The MNIST database".
Result<int64_t> write_binary_images(std::span<const std::filesystem::path> files,
                                    const std::filesystem::path& out);

}  // namespace hanji::data
