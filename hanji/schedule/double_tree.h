#pragma once

#include "hanji/schedule/step_list.h"

namespace hanji::schedule {

/// Two binary trees over the ranks but the root, each for one half of the message, in which who
/// passes on in one tree only receives in the other: so both ports of every rank are in use. Both
/// are pipelines of k segments per half. p ranks, N elements, a the latency of a message, b the
/// seconds per element; D = floor(log2(p - 1)) + 1 is the depth below the root.
/// Errors  invalid_argument for segments < 1.
/// Source  Sanders, Speck and Traeff, Parallel Computing 35(12), 2009. There the edges have two
///         colours and alternate; here both are one round in which messages share ports.

/// Cost    D + k - 1 rounds: (D+k-1) (a + N/k b); best k = sqrt((D-1) N b / a).
StepList broadcast_double_tree(int ranks, int64_t count, int root, int segments);

/// Up both trees to rank 0, and down again.
/// Bits    order is kept for p <= 2: a tree sums in the order of its own shape.
/// Cost    2(D+k-1) (a + N/k b), and at most (D+k-1) 3/2 N/k to combine.
StepList all_reduce_double_tree(int ranks, int64_t count, int segments);

}  // namespace hanji::schedule
