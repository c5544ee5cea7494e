#pragma once

#include <cstdint>
#include <vector>

#include "hanji/base/status.h"

namespace hanji::topology {

/// Pins the calling thread. Errors: internal with the reason.
Status pin_to(int cpu);

/// Seconds from a store on one CPU to its sight on the other: half of a round trip, the median of
/// some hundred batches.
/// Errors  internal if a thread cannot be pinned; timeout if one of the CPUs does not answer within
///         a second.
Result<double> flag_seconds(int first, int second);

/// Bytes per second at which `second` copies what `first` wrote, the result compared; a byte copied
/// counts once. A median over 50 ms, at least three copies.
/// Errors  internal if a thread cannot be pinned or the copy differs; out_of_memory.
Result<double> copy_bytes_per_second(int first, int second, int64_t bytes);

/// All bytes copied per second while each CPU copies between buffers of its own for 80 ms.
/// Errors  as above.
Result<double> copies_at_once(const std::vector<int>& cpus, int64_t bytes);

}  // namespace hanji::topology
