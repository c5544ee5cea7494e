#pragma once

#include "hanji/schedule/step_list.h"

namespace hanji::schedule {

/// The root's output becomes the reduction of all inputs, combined by pairwise_tree(ranks): the
/// bits of an all_reduce. p ranks of N elements; slice r is layout::shard_range(N, p, r).

/// Small messages: the others copy their tensors into their slots, one sync, the root reduces.
/// Cost    1 sync; all together read (2p-1) N and write pN.
StepList reduce_flat(int ranks, int64_t count, int root);

/// Tensors in the heap: sync; rank r reduces slice r of all inputs into the root's output; sync.
/// Cost    2 syncs; all together read pN and write N, which is the least there can be.
StepList reduce_direct(int ranks, int64_t count, int root);

/// Private tensors: sync; the root reduces one chunk out of one half of all slots, its own part
/// straight from the tensor, while the others fill the other half with the next.
/// Cost    1 + ceil(N / chunk) syncs; traffic as reduce_flat; slots of 2 chunks.
StepList reduce_staged(int ranks, int64_t count, int root, int64_t chunk);

}  // namespace hanji::schedule
