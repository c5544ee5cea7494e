#pragma once

#include <filesystem>
#include <vector>

#include "hanji/base/status.h"
#include "hanji/checkpoint/manifest.h"
#include "hanji/checkpoint/named_tensor.h"

namespace hanji::checkpoint {

/// Everything that training changes.
struct State {
  std::vector<NamedTensor> model;
  std::vector<NamedTensor> optimizer;
};

struct SaveOptions {
  std::filesystem::path folder;  ///< DIR/checkpoints.
  int keep = 3;                  ///< The last so many stay; at least 1.
  bool keep_best = true;         ///< So does the one with the lowest validation loss.
};

/// Saves a checkpoint: it appears whole by one rename after everything is on the disk, or not at
/// all, and `latest` follows. A checkpoint of the same step is replaced. Then the ones that are
/// neither among the last nor the best go.
///
/// Cost    the state is written once and read once for its checksums (from the page cache).
/// Errors  kOutOfMemory before anything is written when the disk has too little room, or later
///         when it fills up; kInvalidArgument for tensors that no file can hold; others from the
///         system. The checkpoints that were there stay, and what was half written is removed.
/// Thread  one save at a time into one folder, by one process.
Status save_checkpoint(const SaveOptions& options, const State& state, Manifest manifest);

}  // namespace hanji::checkpoint
