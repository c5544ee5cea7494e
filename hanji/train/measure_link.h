#pragma once

#include "hanji/comm/group.h"
#include "hanji/cost/simulate.h"

namespace hanji::train {

/// What joins the hosts of a group, seen through its own all_reduce: the latency behind one element,
/// and the bytes per second that a host sends, and receives at once, behind some MiB.
///
/// Cost    9 MiB over each host's link, on 1 Gbit/s a tenth of a second.
/// Result  each rank's own figures; one of them, say rank 0's, stands for all.
/// Order   collective.
/// Errors  throws as Work::wait().
cost::Network measure_link(const comm::Group& group, int num_hosts);

}  // namespace hanji::train
