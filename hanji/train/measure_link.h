#pragma once

#include "hanji/comm/group.h"
#include "hanji/cost/simulate.h"

namespace hanji::train {

/// Measures the network between the hosts of a group by all_reduce: the latency with one element, and
/// the bytes per second that a host sends and receives at the same time with some MiB.
///
/// Cost    9 MiB over each host's link, 0.1 s at 1 Gbit/s.
/// Result  each rank's own figures; use those of one rank for all.
/// Order   collective.
/// Errors  throws as Work::wait().
cost::Network measure_link(const comm::Group& group, int num_hosts);

}  // namespace hanji::train
