#pragma once

#include "hanji/schedule/step_list.h"

namespace hanji::schedule {

/// Four ways to the same bits: every element is combined by pairwise_tree(ranks). p ranks of N
/// elements; slice r is layout::shard_range(N, p, r). Every maker of this folder throws Error
/// (invalid_argument) on ranks < 1, count < 0, chunk < 1 or a root outside the ranks.

/// Small messages: each rank copies its tensor into its slot, one sync, each reduces all slots.
/// Cost    1 sync; every rank reads (p+1) N and writes 2N.
StepList all_reduce_flat(int ranks, int64_t count);

/// Tensors in the heap: sync; rank r reduces slice r of all inputs into all outputs; sync.
/// Cost    2 syncs; all ranks together read pN and write pN, which is the least there can be.
StepList all_reduce_direct(int ranks, int64_t count);

/// Private tensors: a sync, then chunk by chunk of `chunk` elements the slices that others need go
/// into the slot; sync; the own slice is reduced, its own part straight from the tensor, into output
/// and result; sync; the other slices are copied out of their owners' results. Slot and result have
/// two halves, so that the next chunk goes in while one is reduced, and one sync serves both.
/// Cost    2 + ceil(N / chunk) syncs; all ranks together read (3p-2) N and write (2p-1) N, and
///         for p > 1 one N more, the results.
StepList all_reduce_staged(int ranks, int64_t count, int64_t chunk);

/// Between hosts: slices are exchanged in pairs, summed in order, and exchanged again. In round k
/// ranks i + j = k (mod p) are partners, and each sends while it receives.
/// Cost    no sync; rank r sends N - n_r + (p-1) n_r elements, n_r its slice.
StepList all_reduce_exchange(int ranks, int64_t count, Kept kept = {});

}  // namespace hanji::schedule
