#pragma once

#include <cstdint>
#include <vector>

#include "hanji/schedule/step_list.h"

namespace hanji::schedule {

/// The root's output becomes the inputs of all ranks, one after another. p ranks, N elements of
/// input each; or rank r has counts[r], and N is their mean in what a list costs.

/// Small messages: the others copy their inputs into their slots, one sync, the root copies out.
/// Cost    1 sync; all together read and write (2p-1) N.
StepList gather_flat(int ranks, int64_t count, int root);
StepList gather_flat(const std::vector<int64_t>& counts, int root);

/// Tensors in the heap: sync; rank r copies its input into shard r of the root's output; sync.
/// Cost    2 syncs; all together read and write pN, which is the least there can be.
StepList gather_direct(int ranks, int64_t count, int root);
StepList gather_direct(const std::vector<int64_t>& counts, int root);

/// Private tensors: sync; the root copies one chunk out of one half of all slots while the others
/// fill the other half with the next.
/// Cost    1 + ceil(largest N / chunk) syncs; traffic as gather_flat; slots of 2 chunks.
StepList gather_staged(int ranks, int64_t count, int root, int64_t chunk);
StepList gather_staged(const std::vector<int64_t>& counts, int root, int64_t chunk);

}  // namespace hanji::schedule
