#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <source_location>
#include <vector>

#include "hanji/comm/call_options.h"
#include "hanji/comm/group.h"
#include "hanji/comm/work.h"

namespace hanji::comm {

/// Fills `output`, on rank r of `group`, with slice r of the `input` of the rank `root`.
///
/// Shape   `input` has size() times the elements of `output`; both contiguous and of one dtype. It
///         is looked at on the root only and may be undefined elsewhere. The root's `output` may be
///         exactly its own slice of `input`; any other overlap is refused.
/// Cost    in the heap, n ranks, S bytes each: 2 syncs, one copy of S bytes per rank.
/// Errors  as all_reduce(); throws Error(kInvalidArgument) for a root outside the group.
Work scatter(at::Tensor& output, const at::Tensor& input, int root, const Group& group,
             const CallOptions& options = {},
             std::source_location call_site = std::source_location::current());

/// The same where rank r gets counts[r] elements, 0 included. All ranks give the same counts, or
/// wait() throws Error(kMismatch) on all of them before a byte is used.
Work scatter(at::Tensor& output, const at::Tensor& input, const std::vector<int64_t>& counts,
             int root, const Group& group, const CallOptions& options = {},
             std::source_location call_site = std::source_location::current());

}  // namespace hanji::comm
