#pragma once

#include "hanji/base/status.h"
#include "hanji/schedule/step_list.h"

namespace hanji::schedule {

/// Refuses a list that could touch memory outside its buffers or that no engine can read: ranks,
/// places, parts, ranges, trees, peers. Says nothing about the result.
Status check_bounds(const StepList& list);

/// Proves a list by running it on symbols, once with separate inputs and outputs and once, if it
/// may run in place, with both the same memory. Proved are: bounds; every rank meets every sync;
/// sends meet receives of the same length and nobody waits for ever, even if a send blocks until
/// received; messages of one group leave alone what one of them receives; between two syncs no
/// rank touches what another writes; no tensor of a peer outside the first and last sync; nothing
/// is read before it is written; every output is what the routine promises, in the promised
/// order, reduced (rounded, averaged) once; steps, syncs and elements moved equal the closed
/// formula if the algorithm is one of this folder.
///
/// Cost    O(S log S) for S operands; independent of count.
/// Errors  invalid_argument, naming rank, step and element.
Status check(const StepList& list);

}  // namespace hanji::schedule
