#pragma once

#include <string>
#include <vector>

#include "hanji/base/tcp.h"
#include "hanji/launch/internal/announcement.h"
#include "hanji/launch/launcher.h"

namespace hanji::launch {

/// "NAME=value" lines for one rank: this process's, with the rank's identity, as torchrun tells it,
/// instead of any outer launcher's, `master` as MASTER_ADDR and MASTER_PORT unless its port is 0,
/// OMP_NUM_THREADS as the number of its CPUs unless the user has set it, and last
/// options.environment.
std::vector<std::string> environment_of_rank(const LaunchOptions& options,
                                             const Announcement& announcement,
                                             const base::HostPort& master);

}  // namespace hanji::launch
