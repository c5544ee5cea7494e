#pragma once

#include "hanji/schedule/step_list.h"

namespace hanji::schedule {

/// Any number of ranks in ceil(log2 p) rounds: in round k every rank serves the one 2^k before it.
/// p ranks, N elements of input, a the latency of a message, b the seconds per element.
/// Source  Bruck et al., "Efficient algorithms for all-to-all communications in multiport
///         message-passing systems", IEEE Trans. Parallel Distrib. Syst. 8(11), 1997.

/// What a rank has doubles in every round; at the end it is turned into place.
/// Cost    ceil(log2 p) a + (p-1) N b, and 2 p N copied. Slots of p N.
StepList all_gather_bruck(int ranks, int64_t count, Kept kept = {});

/// A block for the rank i further on moves 2^k ranks in round k if bit k of i is set: few messages,
/// but each byte moves up to log2 p times. N elements for each rank.
/// Cost    log2 p (a + p/2 N b) for p = 2^n. Slots of 2 p N.
StepList all_to_all_bruck(int ranks, int64_t count, Kept kept = {});

/// The opposite: in round k every rank gives its block to the rank k further on.
/// Cost    (p-1) (a + N b). Not in place: what arrives would lie on what is still to go.
StepList all_to_all_pairwise(int ranks, int64_t count, Kept kept = {});

}  // namespace hanji::schedule
