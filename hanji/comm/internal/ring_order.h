#pragma once

#include <chrono>
#include <vector>

#include "hanji/comm/internal/wire.h"

namespace hanji::comm {

/// The ranks of a wire in the order in which rings and trees should join them: those of one host,
/// package, NUMA node and cache next to each other, as their affinity masks say.
///
/// Result  the same on every rank; empty for two ranks, which have no order.
/// Order   called by every rank, before anything else goes over the wire.
/// Cost    one gather.
/// Errors  throws Error: timeout names ranks that did not come.
std::vector<int> ring_order(Wire& wire, std::chrono::nanoseconds deadline);

}  // namespace hanji::comm
