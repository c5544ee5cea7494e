#pragma once

#include "hanji/schedule/step_list.h"

namespace hanji::schedule {

/// Rings: every rank sends to the next while it receives from the one before, so every port is
/// busy all the time and no rank moves more than it must. p ranks, N elements; a is the latency of
/// a message, b the seconds per element, c the seconds to combine one.
/// Bits    order is kept for p <= 2: element i is summed in the order of the ring from its slice.
/// Source  Patarasuk and Yuan, J. Parallel Distrib. Comput. 69(2), 2009.

/// Reduces slices around the ring, then gathers them.
/// Cost    2(p-1) rounds: 2(p-1) a + 2 (p-1)/p N b + (p-1)/p N c.
StepList all_reduce_ring(int ranks, int64_t count, Kept kept = {});

/// Shard r travels from rank r + 1 around to rank r, every rank adds its own.
/// Cost    p-1 rounds of N (the output): (p-1) (a + N b + N c). Slots of 2 N.
StepList reduce_scatter_ring(int ranks, int64_t count, Kept kept = {});

/// Every shard travels around.
/// Cost    p-1 rounds of N (the input): (p-1) (a + N b).
StepList all_gather_ring(int ranks, int64_t count, Kept kept = {});

/// An all_reduce that is a ring inside every host, then one ring for each local rank over its
/// rail peers on all hosts, then a ring inside every host again. Rank h * ranks_per_host + l is rank l
/// of host h.
/// Cost    l ranks on each of h hosts: 2(l-1) + 2(h-1) rounds; a host's ranks together send
///         2 N (h-1)/h to other hosts, which is the least there can be.
/// Errors  invalid_argument unless ranks_per_host >= 1 divides the ranks.
StepList all_reduce_hierarchical(int ranks, int64_t count, int ranks_per_host, Kept kept = {});

}  // namespace hanji::schedule
