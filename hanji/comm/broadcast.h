#pragma once

#include <ATen/core/Tensor.h>

#include <source_location>

#include "hanji/comm/call_options.h"
#include "hanji/comm/group.h"
#include "hanji/comm/work.h"

namespace hanji::comm {

/// Replaces `tensor`, on every rank of `group`, by that of the rank `root`.
///
/// Shape   any, contiguous, the same number of elements and dtype on every rank.
/// Result  the root's bytes.
/// Cost    n ranks, S bytes: one copy of S bytes per other rank.
/// Errors  as all_reduce(); throws Error(kInvalidArgument) for a root outside the group.
Work broadcast(at::Tensor& tensor, int root, const Group& group, const CallOptions& options = {},
               std::source_location call_site = std::source_location::current());

/// The same out of place: fills `output` on every rank with the `input` of the root.
///
/// Shape   `input` is looked at on the root only and may be undefined elsewhere; there it is as
///         large as `output` and of its dtype, and may be exactly it, but not overlap.
Work broadcast(at::Tensor& output, const at::Tensor& input, int root, const Group& group,
               const CallOptions& options = {},
               std::source_location call_site = std::source_location::current());

}  // namespace hanji::comm
