#pragma once

#include "hanji/schedule/step_list.h"

namespace hanji::schedule {

/// Every rank's output becomes the root's input. p ranks of N elements.

/// Small messages: the root copies into its slot, one sync, the others copy out.
/// Cost    1 sync; all together read pN and write (p+1) N, the root's own output included.
StepList broadcast_flat(int ranks, int64_t count, int root);

/// Tensors in the heap: sync; rank r copies slice r of the root's input to every output; sync.
/// Cost    2 syncs; all together read N and write pN.
StepList broadcast_direct(int ranks, int64_t count, int root);

/// Private tensors: sync; the root fills one half of its slot with a chunk while the others
/// empty the other half.
/// Cost    1 + ceil(N / chunk) syncs; traffic as broadcast_flat; slots of 2 chunks.
StepList broadcast_staged(int ranks, int64_t count, int root, int64_t chunk);

}  // namespace hanji::schedule
