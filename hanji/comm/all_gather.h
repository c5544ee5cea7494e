#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <source_location>
#include <vector>

#include "hanji/comm/call_options.h"
#include "hanji/comm/group.h"
#include "hanji/comm/work.h"

namespace hanji::comm {

/// Fills `output`, on every rank of `group`, with the `input` of all ranks in rank order.
///
/// Shape   `output` has size() times the elements of `input`; both contiguous and of one dtype.
///         `input` may be exactly its own place in `output`; any other overlap is refused.
/// Cost    n ranks, S bytes each: n * S bytes written per rank.
/// Errors  as all_reduce().
Work all_gather(at::Tensor& output, const at::Tensor& input, const Group& group,
                const CallOptions& options = {},
                std::source_location call_site = std::source_location::current());

/// The same where rank r gives counts[r] elements, 0 included. All ranks give the same counts, or
/// wait() throws Error(kMismatch) on all of them before a byte is used.
Work all_gather(at::Tensor& output, const at::Tensor& input, const std::vector<int64_t>& counts,
                const Group& group, const CallOptions& options = {},
                std::source_location call_site = std::source_location::current());

}  // namespace hanji::comm
