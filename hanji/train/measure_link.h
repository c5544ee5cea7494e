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

/// The same from the seconds of a call with one element and of one in which a host sends `sent_bytes`.
/// Result  if the second takes less than twice as long, as between processes of one machine on busy cores,
///         a rate that the link has at least: all bytes in all of that time.
cost::Network network_of(double small_seconds, double large_seconds, double sent_bytes);

}  // namespace hanji::train
