#pragma once

#include <filesystem>

#include "hanji/base/status.h"

namespace hanji::base {

/// hanji's folder for what it measured on this machine: HANJI_CACHE_DIR, else
/// XDG_CACHE_HOME/hanji, else HOME/.cache/hanji. It may not be there yet.
/// Errors  not_found where none of the variables is set.
Result<std::filesystem::path> cache_folder();

/// Makes the folder if it is not there.
/// Errors  as cache_folder(); the reason why this user cannot write into it.
Status check_cache_folder();

}  // namespace hanji::base
