#pragma once

#include <cstdint>
#include <vector>

#include "hanji/schedule/step_list.h"

namespace hanji::schedule {

/// Block i of rank r's output becomes block r of rank i's input. p ranks, N elements in each of the
/// p blocks; or rank i gives counts[i * p + j] elements to rank j, and N is their mean in what a
/// list costs. Even flat, staged and swap lists may run in place.

/// Small messages: each rank copies its input into its slot, one sync, each copies its blocks out.
/// Cost    1 sync; every rank reads and writes 2pN.
StepList all_to_all_flat(int ranks, int64_t count);
StepList all_to_all_flat(int ranks, const std::vector<int64_t>& counts);

/// Tensors in the heap, inputs and outputs apart: sync; each rank copies its block out of every
/// input; sync.
/// Cost    2 syncs; every rank reads and writes pN, which is the least there can be.
StepList all_to_all_direct(int ranks, int64_t count);
StepList all_to_all_direct(int ranks, const std::vector<int64_t>& counts);

/// Tensors in the heap, inputs and outputs in one place: sync; of every pair of ranks each swaps one
/// half of the two blocks, chunk by chunk through its slot; sync.
/// Cost    2 syncs; of memory as direct, and each chunk once more through the cache.
StepList all_to_all_swap(int ranks, int64_t count, int64_t chunk);

/// Private tensors: sync; per chunk of a block each rank copies what others get into one half of
/// its slot, sync, and copies its own pieces out of all slots.
/// Cost    1 + ceil(largest N / chunk) syncs; every rank reads and writes (2p-1) N; slots of 2p
///         chunks.
StepList all_to_all_staged(int ranks, int64_t count, int64_t chunk);
StepList all_to_all_staged(int ranks, const std::vector<int64_t>& counts, int64_t chunk);

}  // namespace hanji::schedule
