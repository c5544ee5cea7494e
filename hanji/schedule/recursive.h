#pragma once

#include "hanji/schedule/step_list.h"

namespace hanji::schedule {

/// Pairs of ranks whose numbers differ in one bit exchange: log2 p rounds. p ranks, N elements, a
/// the latency of a message, b the seconds per element, c the seconds to combine one. Where p is
/// no power of two, the first p - 2^n pairs of neighbours work as one rank each: its second gives
/// its part to the first before, and gets the result after.
/// Bits    order is kept where the tree of exchanges is pairwise_tree(p): all powers of two, and
///         3, 6, 7, 12, ...
/// Source  Thakur, Rabenseifner and Gropp, Int. J. High Perform. Comput. Appl. 19(1), 2005.

/// Everything is exchanged in every round: the least latency.
/// Cost    log2 p rounds: log2 p (a + N b + N c); 2 (a + N b) + N c more for another p.
StepList all_reduce_recursive_doubling(int ranks, int64_t count, Kept kept = {});

/// A half, a quarter, ... is exchanged and reduced, then gathered the same way back.
/// Cost    2 log2 p rounds: 2 log2 p a + 2 (p-1)/p N b + (p-1)/p N c; 2 (a + N b) + N c more for
///         another p.
/// Source  Rabenseifner, "Optimization of collective reduction operations", ICCS 2004.
StepList all_reduce_rabenseifner(int ranks, int64_t count, Kept kept = {});

/// Half of the shards, a quarter, ... is exchanged with the farthest, the half as far, ...
/// Bits    order is kept for p <= 3.
/// Cost    N the output: log2 p rounds: log2 p a + (p-1) N (b + c); for another p two rounds,
///         (p+1) N b and p N c more. Slots of 2 p N.
StepList reduce_scatter_recursive_halving(int ranks, int64_t count, Kept kept = {});

}  // namespace hanji::schedule
