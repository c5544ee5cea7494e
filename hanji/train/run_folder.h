#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "hanji/base/folder_lock.h"

namespace hanji::train {

/// Checks that claim_folder() would succeed; creates nothing.
///
/// Errors  kInvalidArgument for a folder that is not empty, and for one that this user cannot create
///         or write.
Status check_folder(const std::string& wanted);

/// Subfolders of the folder of a training run.
inline constexpr std::array kTrainParts = {"trace", "logs", "tensorboard", "checkpoints"};

/// Creates the folder of a run: `wanted`, or a new runs/NUMBER if it is empty, with the subfolders
/// `parts`; lock_folder() creates those of training.
///
/// Errors  as check_folder(); nothing is overwritten.
Result<std::filesystem::path> claim_folder(const std::string& wanted,
                                           std::span<const char* const> parts = {});

/// Locks a run's folder for this process, and creates missing subfolders. If the launcher of an earlier
/// run has died, waits until its rank 0 has ended too.
/// Errors  kInvalidArgument if another run uses it.
Result<base::FolderLock> lock_folder(const std::filesystem::path& out);

/// Prepares the folder of a saved run to resume after step `steps_done`: removes the summary and files
/// that a killed process had not finished, and copies the previous plan to plan.until_STEP.json. That
/// plan stays the run's until another is written, so a kill between the two loses nothing.
/// Order   under lock_folder().
Status reopen_folder(const std::filesystem::path& out, int64_t steps_done);

/// Locks a run's checkpoints for the process that writes them. Waits up to 10 s for the previous one,
/// because ranks die shortly after their launcher.
Result<base::FolderLock> lock_checkpoints(const std::filesystem::path& out);

}  // namespace hanji::train
