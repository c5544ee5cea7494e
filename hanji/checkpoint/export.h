#pragma once

#include <filesystem>
#include <span>
#include <string>

#include "hanji/base/status.h"
#include "hanji/checkpoint/load.h"

namespace hanji::checkpoint {

/// Writes tensors of a checkpoint into a new, plain safetensors file that others read: the model's,
/// or only those of either file that `names` lists. The file appears whole, or not at all.
///
/// Result  the number of tensors written.
/// Errors  kInvalidArgument for a file that exists (nothing is overwritten); kNotFound for a name
///         that no tensor has, with the nearest one; those of write_safetensors().
Result<size_t> export_tensors(const Checkpoint& checkpoint, std::span<const std::string> names,
                              const std::filesystem::path& to);

}  // namespace hanji::checkpoint
