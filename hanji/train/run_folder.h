#pragma once

#include <filesystem>
#include <string>

#include "hanji/base/status.h"

namespace hanji::train {

/// Makes the folder of a run: `wanted`, or a fresh runs/NUMBER where it is empty.
///
/// Errors  kInvalidArgument for a folder that already holds something; nothing is overwritten.
Result<std::filesystem::path> claim_folder(const std::string& wanted);

/// hanji's folder for what it measured on this machine, made if missing: HANJI_CACHE_DIR, else
/// XDG_CACHE_HOME/hanji, else HOME/.cache/hanji.
Result<std::filesystem::path> cache_folder();

}  // namespace hanji::train
