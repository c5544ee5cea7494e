#pragma once

#include <cstdint>
#include <vector>

#include "hanji/schedule/step_list.h"

namespace hanji::schedule {

/// Rank r's output becomes shard r of the root's input. p ranks, N elements of output each; or
/// shard r has counts[r] elements, and N is their mean in what a list costs.

/// Small messages: the root copies its input into its slot, one sync, each copies its shard out.
/// Cost    1 sync; all together read and write 2pN.
StepList scatter_flat(int ranks, int64_t count, int root);
StepList scatter_flat(const std::vector<int64_t>& counts, int root);

/// Tensors in the heap: sync; rank r copies shard r of the root's input to its output; sync.
/// Cost    2 syncs; all together read and write pN, which is the least there can be.
StepList scatter_direct(int ranks, int64_t count, int root);
StepList scatter_direct(const std::vector<int64_t>& counts, int root);

/// Private tensors: sync; the root fills one half of its slot with a chunk of every other shard
/// while the others empty the other half.
/// Cost    1 + ceil(largest N / chunk) syncs; all together read and write (2p-1) N; slots of 2p
///         chunks.
StepList scatter_staged(int ranks, int64_t count, int root, int64_t chunk);
StepList scatter_staged(const std::vector<int64_t>& counts, int root, int64_t chunk);

}  // namespace hanji::schedule
