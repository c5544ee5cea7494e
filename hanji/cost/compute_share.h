#pragma once

#include "hanji/base/status.h"
#include "hanji/cost/measure.h"

namespace hanji::cost {

/// What each rank keeps of its rate of multiplying while all ranks multiply: 1 where each has a core
/// of its own, about half where two share one core's multipliers (hyperthreads, virtual CPUs), less
/// where there are more ranks than CPUs. Turbo that falls as cores wake is in it too.
///
/// Result  in (0, 1]: the mean of `ranks` threads, pinned as `rank_cpus` says, over one alone; of
///         each the best of five interleaved rounds. One rank: 1, not measured.
/// Cost    50 ms.
/// Errors  invalid_argument for fewer than one rank; out_of_memory if threads cannot be had.
Result<double> measure_compute_share(const MeasureOptions& options);

}  // namespace hanji::cost
