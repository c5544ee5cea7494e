#pragma once

#include <cstdint>
#include <vector>

#include "hanji/base/status.h"
#include "hanji/topology/contention.h"

namespace hanji::topology::internal {

/// Keeps all `links` busy, counts their bytes for a tenth of a second after they have begun, and ends them. Copy i is
/// pinned to cpus[i]; threads of sockets are not.
/// Errors  internal if a thread cannot be started or pinned; out_of_memory; those of sockets.
Result<std::vector<double>> rates_at_once(const std::vector<SharedLink>& links,
                                          const std::vector<int>& cpus, int64_t bytes);

}  // namespace hanji::topology::internal
