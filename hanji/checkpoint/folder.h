#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "hanji/base/status.h"

namespace hanji::checkpoint {

/// A checkpoint that lies in a folder of checkpoints, not yet looked into.
struct Entry {
  int64_t step = 0;
  std::filesystem::path path;
};

/// "step_00000020".
std::string folder_name(int64_t step);

/// The checkpoints of `folder` by ascending step. Links are left out: they could lead anywhere.
/// A checkpoint that was being replaced when its writer died is listed under its set-aside name.
/// Errors  kNotFound when there is no such folder.
Result<std::vector<Entry>> list_checkpoints(const std::filesystem::path& folder);

/// The step that the file `latest` names; -1 when it is missing or names none.
int64_t latest_step(const std::filesystem::path& folder);

/// Makes `latest` name a step, atomically.
Status set_latest(const std::filesystem::path& folder, int64_t step);

/// Puts what is in `unfinished` in place as the checkpoint of `step`, so that at every moment the
/// old or the new one can be loaded, and removes the old one.
Status publish(const std::filesystem::path& unfinished, const std::filesystem::path& folder,
               int64_t step);

/// Removes a checkpoint so that no moment shows half of it.
Status remove_checkpoint(const Entry& entry);

/// Where a checkpoint is written before it is published.
std::filesystem::path unfinished_path(const std::filesystem::path& folder, int64_t step);

/// Removes what a writer that died left behind, and puts back what it had set aside.
/// Order   before any save into the folder, never during one.
Status sweep(const std::filesystem::path& folder);

}  // namespace hanji::checkpoint
