#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "hanji/base/status.h"
#include "hanji/checkpoint/manifest.h"
#include "hanji/checkpoint/safetensors.h"

namespace hanji::checkpoint {

/// A checkpoint that has been verified. Its tensors' bytes are mapped files, read when touched.
struct Checkpoint {
  std::filesystem::path path;
  Manifest manifest;
  std::vector<SafetensorsFile> files;  ///< As the manifest lists them.
  std::vector<SavedTensor> model;      ///< By name; whole, wherever the runs of one lie.
  std::vector<SavedTensor> optimizer;
  /// Why better candidates were passed over, newest first; tell the user.
  std::vector<Status> refused;
};

/// Opens one checkpoint: checks the manifest's seal, the files' structure, that every element of
/// every tensor is in one of them, and the checksums. Nothing outside `path` is opened, whatever its
/// files say.
/// Cost    one read of the whole checkpoint, or of its headers; no copy of any tensor.
/// Errors  kNotFound for a missing file, kCorrupt for changed bytes; each names file and tensor.
Result<Checkpoint> open_checkpoint(const std::filesystem::path& path,
                                   Check check = Check::kContent);

/// Opens the checkpoint that `latest` names or, when it is damaged or missing, the nearest good
/// one: first those before it, newest first, then those after it. `path` may also be the folder of
/// a run or a single checkpoint, which then is the only candidate.
/// Errors  kNotFound when there is none; kCorrupt, with every candidate's reason, when none is
///         good.
Result<Checkpoint> load_checkpoint(const std::filesystem::path& path);

}  // namespace hanji::checkpoint
