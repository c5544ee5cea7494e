#pragma once

#include "hanji/comm/group.h"

namespace hanji::comm {

/// Adds what another group has moved; the sum has no times if either of the two has none.
inline void add(Stats& sum, const Stats& more) {
  sum.operations += more.operations;
  sum.bytes += more.bytes;
  sum.wire_bytes += more.wire_bytes;
  sum.network_bytes += more.network_bytes;
  sum.wait_ns += more.wait_ns;
  sum.busy_ns += more.busy_ns;
  if (!sum.times || !more.times) return sum.times.reset();
  sum.times->transfer_ns += more.times->transfer_ns;
  sum.times->exposed_ns += more.times->exposed_ns;
  sum.times->skew_ns += more.times->skew_ns;
}

}  // namespace hanji::comm
