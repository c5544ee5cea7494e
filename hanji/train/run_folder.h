#pragma once

#include <filesystem>
#include <string>

#include "hanji/base/status.h"

namespace hanji::train {

/// Whether claim_folder() would succeed; makes nothing.
///
/// Errors  kInvalidArgument for a folder that already holds something, and for one that this user
///         cannot make or write.
Status check_folder(const std::string& wanted);

/// Makes the folder of a run: `wanted`, or a fresh runs/NUMBER where it is empty.
///
/// Errors  as check_folder(); nothing is overwritten.
Result<std::filesystem::path> claim_folder(const std::string& wanted);

/// hanji's folder for what it measured on this machine, made if missing: HANJI_CACHE_DIR, else
/// XDG_CACHE_HOME/hanji, else HOME/.cache/hanji.
Result<std::filesystem::path> cache_folder();

}  // namespace hanji::train
