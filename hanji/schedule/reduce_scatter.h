#pragma once

#include <cstdint>
#include <vector>

#include "hanji/schedule/step_list.h"

namespace hanji::schedule {

/// Rank r's output becomes the reduction of shard r of all inputs, combined by
/// pairwise_tree(ranks). p ranks, N elements of output and pN of input each; or shard r has
/// counts[r] elements, and N is their mean in what a list costs.

/// Small messages: each rank copies its input into its slot, one sync, each reduces its shard.
/// Cost    1 sync; every rank reads 2pN and writes (p+1) N.
StepList reduce_scatter_flat(int ranks, int64_t count);
StepList reduce_scatter_flat(const std::vector<int64_t>& counts);

/// Tensors in the heap: sync; rank r reduces shard r of all inputs into its output; sync.
/// Cost    2 syncs; every rank reads pN and writes N.
StepList reduce_scatter_direct(int ranks, int64_t count);
StepList reduce_scatter_direct(const std::vector<int64_t>& counts);

/// Private tensors: sync; per chunk of a shard each rank copies the pieces that others need into
/// one half of its slot, sync, and reduces its own piece, own part straight from the tensor.
/// Cost    1 + ceil(largest N / chunk) syncs; every rank reads (2p-1) N and writes pN; slots of
///         2p chunks.
StepList reduce_scatter_staged(int ranks, int64_t count, int64_t chunk);
StepList reduce_scatter_staged(const std::vector<int64_t>& counts, int64_t chunk);

/// Between hosts: shards are exchanged in pairs, as in all_reduce_exchange(), and summed in order.
/// Cost    no sync; every rank sends (p-1) N.
StepList reduce_scatter_exchange(int ranks, int64_t count, Kept kept = {});
StepList reduce_scatter_exchange(const std::vector<int64_t>& counts);

}  // namespace hanji::schedule
