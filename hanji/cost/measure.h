#pragma once

#include <cstdint>
#include <vector>

#include "hanji/base/status.h"
#include "hanji/cost/rates.h"

namespace hanji::cost {

struct MeasureOptions {
  int ranks = 1;
  int usable_cores = 1;                     ///< With fewer cores than ranks waits yield early.
  int64_t cache_bytes = int64_t{8} << 20;   ///< Of the last level; see topology::Machine::caches.
  std::vector<std::vector<int>> rank_cpus;  ///< Logical CPUs of each rank; empty pins nobody.
};

/// Measures what `ranks` threads of this process do to memory and to each other.
///
/// Result  the best of each phase; the tensors are ordinary pages of this process.
/// Cost    under 0.2 s on an idle host: four phases of about 20 ms, and the first touch of twice the
///         cache, at most 128 MiB.
/// Errors  invalid_argument for fewer than one rank; out_of_memory if buffers or threads cannot be
///         had.
/// Source  best of repeated runs: McCalpin, "Memory Bandwidth and Machine Balance", 1995 (STREAM).
Result<Rates> measure_rates(const MeasureOptions& options);

}  // namespace hanji::cost
