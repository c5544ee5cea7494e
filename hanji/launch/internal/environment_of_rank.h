#pragma once

#include <string>
#include <vector>

#include "hanji/launch/internal/announcement.h"
#include "hanji/launch/launcher.h"

namespace hanji::launch {

/// "NAME=value" lines for one rank: this process's, with the rank's identity instead of any outer
/// launcher's, OMP_NUM_THREADS as the number of its CPUs unless the user has set it, and last
/// options.environment.
std::vector<std::string> environment_of_rank(const LaunchOptions& options,
                                             const Announcement& announcement);

}  // namespace hanji::launch
