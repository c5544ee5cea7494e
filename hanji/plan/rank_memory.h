#pragma once

#include <cstdint>
#include <vector>

#include "hanji/plan/memory.h"
#include "hanji/plan/plan.h"

namespace hanji::plan {

/// Samples of the data coordinate that has most.
int64_t largest_share(const Plan& plan);

/// What a rank holds at the highest point of a step of micro-batches of at most `micro_batch`.
///
/// `plan`: its config, model, kernels, mesh and shares are decided.
/// Result  where states are cut, of that rank; else, for rank 0, of each category what the rank
///         holds that needs most of it.
std::vector<MemoryLine> rank_memory(const Plan& plan, int64_t micro_batch, int rank);

/// What all ranks of a host hold together, each its own, of the host that needs most. Where states
/// lie once for several ranks, they are counted once.
std::vector<MemoryLine> host_memory(const Plan& plan);

}  // namespace hanji::plan
