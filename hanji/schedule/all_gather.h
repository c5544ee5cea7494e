#pragma once

#include <cstdint>
#include <vector>

#include "hanji/schedule/step_list.h"

namespace hanji::schedule {

/// Every rank's output becomes the inputs of all ranks, one after another. p ranks, N elements
/// of input each; or rank r has counts[r], and N is their mean in what a list costs.

/// Small messages: each rank copies its input into its slot, one sync, each copies all slots out.
/// Cost    1 sync; every rank reads (p+1) N and writes (p+1) N.
StepList all_gather_flat(int ranks, int64_t count);
StepList all_gather_flat(const std::vector<int64_t>& counts);

/// Tensors in the heap: sync; rank r copies its input into shard r of every output; sync. An
/// input that is that shard of its own output stays where it is.
/// Cost    2 syncs; every rank reads N and writes pN.
StepList all_gather_direct(int ranks, int64_t count);
StepList all_gather_direct(const std::vector<int64_t>& counts);

/// Private tensors: sync; per chunk of the input each rank fills one half of its slot, sync, and
/// copies that half of all ranks out.
/// Cost    1 + ceil(largest N / chunk) syncs; traffic as all_gather_flat; slots of 2 chunks.
StepList all_gather_staged(int ranks, int64_t count, int64_t chunk);
StepList all_gather_staged(const std::vector<int64_t>& counts, int64_t chunk);

}  // namespace hanji::schedule
