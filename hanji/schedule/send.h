#pragma once

#include <cstdint>

#include "hanji/schedule/step_list.h"

namespace hanji::schedule {

/// A message: rank 1's output becomes rank 0's input. Two ranks, N elements.

/// Small messages: the sender copies into its slot, one sync, the receiver copies out.
/// Cost    1 sync; 2N are read and written.
StepList send_flat(int64_t count);

/// The sender's tensor in the heap: sync; the receiver copies; sync. The sender has nothing to do
/// between its syncs, so an engine may post both when it starts.
/// Cost    2 syncs; N are read and written, which is the least there can be.
StepList send_direct(int64_t count);

/// Private tensors: sync; the sender fills one half of its slot with a chunk while the receiver
/// empties the other half.
/// Cost    1 + ceil(N / chunk) syncs; traffic as send_flat; slots of 2 chunks.
StepList send_staged(int64_t count, int64_t chunk);

}  // namespace hanji::schedule
