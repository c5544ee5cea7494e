#pragma once

#include "hanji/schedule/step_list.h"

namespace hanji::schedule {

/// Binomial trees: in every round each rank that has a part serves one that has not. The tree is
/// pairwise_tree() over the ranks, so sums keep their order for any root and any number of ranks.
/// p ranks, N elements, a the latency of a message, b the seconds per element.
/// Source  Thakur, Rabenseifner and Gropp, Int. J. High Perform. Comput. Appl. 19(1), 2005.

/// 8 ranks from 0: 0->4; 0->2, 4->6; 0->1, 2->3, 4->5, 6->7.
/// Cost    ceil(log2 p) rounds of N: ceil(log2 p) (a + N b).
StepList broadcast_binomial(int ranks, int64_t count, int root);

/// The same backwards: 1->0, 3->2, 5->4, 7->6; 2->0, 6->4; 4->0, each added to what is there.
/// Cost    ceil(log2 p) (a + N b), and ceil(log2 p) N to combine. Slots of 2 N.
StepList reduce_binomial(int ranks, int64_t count, int root);

/// All shards of a half of the ranks go at once to the rank that speaks for it, and up. N is the
/// share of a rank.
/// Cost    ceil(log2 p) a + (p-1) N b for p = 2^n. Slots of p N.
StepList gather_binomial(int ranks, int64_t count, int root);

/// The same backwards: half of the shards to the other half of the ranks, and down.
StepList scatter_binomial(int ranks, int64_t count, int root);

/// The binomial reduce to rank 0, then the binomial broadcast from there.
/// Cost    2 ceil(log2 p) (a + N b), and ceil(log2 p) N to combine. Slots of 2 N.
StepList all_reduce_reduce_broadcast(int ranks, int64_t count);

}  // namespace hanji::schedule
