#pragma once

#include <cstdint>
#include <vector>

#include "hanji/plan/memory.h"
#include "hanji/plan/plan.h"

namespace hanji::plan {

/// The maximum number of samples of a data coordinate.
int64_t largest_share(const Plan& plan);

/// The maximum memory of a rank in a step with micro-batches of at most `micro_batch`.
///
/// `plan`: with config, model, kernels, mesh and shares decided.
/// Result  if state is sharded, of that rank; else, for rank 0, the maximum over ranks of each category.
std::vector<MemoryLine> rank_memory(const Plan& plan, int64_t micro_batch, int rank);

/// The same of the rank of a pipeline that has most; without one of rank 0.
std::vector<MemoryLine> largest_rank_memory(const Plan& plan, int64_t micro_batch);

/// Of each category the maximum over ranks, in the order of plan.memory: what maxima over the ranks of a
/// run are compared with. No rank need have them all.
std::vector<MemoryLine> largest_lines(const Plan& plan);

/// The memory of the rank that has most, each by its own part of the work.
int64_t peak_of_ranks(const Plan& plan);

/// Ranks of the host that has most.
int most_ranks_on_host(const Plan& plan);

/// The sum over the ranks of the host with the maximum. State that several ranks share is counted
/// once.
std::vector<MemoryLine> host_memory(const Plan& plan);

/// Beside tensors, what `ranks` ranks whose lines these are together have in memory of their own: the
/// processes, and what malloc keeps of freed memory. Nothing where the process was not measured.
std::vector<MemoryLine> process_lines(const Plan& plan, const std::vector<MemoryLine>& tensors,
                                      int ranks = 1);

/// The most that a rank has in memory at once: tensors, those lines, and mapped libraries.
int64_t resident_bytes(const Plan& plan);

/// The ranks of a host that see the samples of `rank`, itself included: the first of them reads.
std::vector<int> readers_of(const Plan& plan, int rank);

/// Returns the bytes of the pages that data.cache = process keeps, on the first rank of each host; 0
/// without it.
int64_t cache_bytes(const Plan& plan);

}  // namespace hanji::plan
