#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "hanji/base/status.h"
#include "hanji/checkpoint/manifest.h"
#include "hanji/checkpoint/safetensors.h"

namespace hanji::checkpoint {

/// A checkpoint whose every byte has been verified.
struct Checkpoint {
  std::filesystem::path path;
  Manifest manifest;
  SafetensorsFile model;
  SafetensorsFile optimizer;
  /// Why better candidates were passed over, newest first; tell the user.
  std::vector<Status> refused;
};

/// Opens one checkpoint: checks the manifest's seal, both files' structure, and the checksum of
/// every tensor. Nothing outside `path` is opened, whatever its files say.
/// Cost    one read of the whole checkpoint.
/// Errors  kNotFound for a missing file, kCorrupt for changed bytes; each names file and tensor.
Result<Checkpoint> open_checkpoint(const std::filesystem::path& path);

/// Opens the checkpoint that `latest` names or, when it is damaged or missing, the nearest good
/// one: first those before it, newest first, then those after it. `path` may also be the folder of
/// a run or a single checkpoint, which then is the only candidate.
/// Errors  kNotFound when there is none; kCorrupt, with every candidate's reason, when none is
///         good.
Result<Checkpoint> load_checkpoint(const std::filesystem::path& path);

}  // namespace hanji::checkpoint
