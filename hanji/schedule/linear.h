#pragma once

#include <cstdint>
#include <vector>

#include "hanji/schedule/step_list.h"

namespace hanji::schedule {

/// Messages from who has a block straight to who gets it, in pairs as in all_reduce_exchange(): the
/// only lists between hosts whose shares may be uneven. p ranks; N elements of a share, or their
/// mean; a the latency of a message, b the seconds per element.

/// Cost    (p-1) (a + N b).
StepList all_gather_linear(int ranks, int64_t count);
StepList all_gather_linear(const std::vector<int64_t>& counts);

/// Cost    the root takes (p-1) (a + N b), the others one message.
StepList gather_linear(int ranks, int64_t count, int root);
StepList gather_linear(const std::vector<int64_t>& counts, int root);
StepList scatter_linear(int ranks, int64_t count, int root);
StepList scatter_linear(const std::vector<int64_t>& counts, int root);

/// Cost    (p-1) (a + N b). Not in place: what arrives would lie on what is still to go.
StepList all_to_all_linear(int ranks, int64_t count);
StepList all_to_all_linear(int ranks, const std::vector<int64_t>& counts);

/// What arrives waits in the slot until everything has gone, so it may run in place.
/// Cost    (p-1) (a + N b), and (p-1) N copied. Slots of p N.
StepList all_to_all_linear_in_place(int ranks, int64_t count);

/// Slices are exchanged in pairs, summed in order, and sent to the root: the bits of
/// all_reduce_exchange(). N elements of the tensor.
/// Cost    rank r sends N - n_r elements, and its sum of n_r if it is not the root, n_r its slice.
StepList reduce_exchange(int ranks, int64_t count, int root);

/// One message from rank 0 to rank 1.
StepList send_message(int64_t count);

}  // namespace hanji::schedule
