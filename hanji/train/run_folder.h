#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "hanji/base/folder_lock.h"

namespace hanji::train {

/// Whether claim_folder() would succeed; makes nothing.
///
/// Errors  kInvalidArgument for a folder that already holds something, and for one that this user
///         cannot make or write.
Status check_folder(const std::string& wanted);

/// The folders in the folder of a training run.
inline constexpr std::array kTrainParts = {"trace", "logs", "tensorboard", "checkpoints"};

/// Makes the folder of a run: `wanted`, or a fresh runs/NUMBER where it is empty, and `parts` in it.
///
/// Errors  as check_folder(); nothing is overwritten.
Result<std::filesystem::path> claim_folder(const std::string& wanted,
                                           std::span<const char* const> parts = kTrainParts);

/// Readies the folder of a saved run to go on behind step `steps_done`: its parts are there, the
/// summary of the run so far goes, and the plan so far is kept as plan.until_STEP.json.
Result<std::filesystem::path> reopen_folder(const std::filesystem::path& out, int64_t steps_done);

/// Keeps a run's folder for this process. Where an earlier run's launcher has died, waits until its
/// rank 0 is gone too.
/// Errors  kInvalidArgument when another run lives in it.
Result<base::FolderLock> lock_folder(const std::filesystem::path& out);

/// Keeps a run's checkpoints for the process that writes them; waits up to 10 s for the one before,
/// as ranks die with their launcher, but not in the same instant.
Result<base::FolderLock> lock_checkpoints(const std::filesystem::path& out);

}  // namespace hanji::train
