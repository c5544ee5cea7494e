#pragma once

#include "hanji/schedule/step_list.h"

namespace hanji::schedule {

/// Broadcasts without a tree. p ranks, N elements, a the latency of a message, b the seconds per
/// element; ranks are served in order from the root: root, root + 1, ... (mod p).

/// The root serves one rank after another.
/// Cost    (p-1) (a + N b).
StepList broadcast_one_by_one(int ranks, int64_t count, int root);

/// The root serves all ranks at once, which share its port.
/// Cost    a + (p-1) N b.
StepList broadcast_all_at_once(int ranks, int64_t count, int root);

/// A chain that is a pipeline: each rank passes one segment on while it receives the next.
/// Cost    p - 2 + k rounds for k segments: (p-2+k) (a + N/k b); best k = sqrt((p-2) N b / a).
/// Errors  invalid_argument for segments < 1.
StepList broadcast_chain(int ranks, int64_t count, int root, int segments, Kept kept = {});

/// A binomial scatter of slices, then a ring that gathers them.
/// Cost    ceil(log2 p) + p - 1 rounds: (ceil(log2 p) + p - 1) a + 2 (p-1)/p N b for p = 2^n.
/// Source  Barnett et al., "Interprocessor collective communication library", SHPCC 1994.
StepList broadcast_scatter_all_gather(int ranks, int64_t count, int root, Kept kept = {});

}  // namespace hanji::schedule
