#pragma once

#include <sched.h>

#include "hanji/cost/measure.h"

namespace hanji::cost {

/// Puts the calling thread where the rank will be. A mask that cannot be set leaves the thread where
/// it is: the figures are then those of any core.
inline void pin_rank(const MeasureOptions& options, int rank) {
  if (static_cast<size_t>(rank) >= options.rank_cpus.size()) return;
  cpu_set_t mask;
  CPU_ZERO(&mask);
  for (const int cpu : options.rank_cpus[rank]) CPU_SET(cpu, &mask);
  sched_setaffinity(0, sizeof mask, &mask);
}

}  // namespace hanji::cost
