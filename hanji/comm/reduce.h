#pragma once

#include <ATen/core/Tensor.h>

#include <source_location>

#include "hanji/comm/all_reduce.h"
#include "hanji/comm/group.h"
#include "hanji/comm/work.h"

namespace hanji::comm {

using ReduceOptions = AllReduceOptions;

/// Fills `output`, on the rank `root` of `group`, with the element-wise reduction of `input` over
/// all ranks.
///
/// Shape   any, contiguous, the same number of elements and dtype on every rank. `output` is looked
///         at on the root only and may be undefined elsewhere. It may be exactly `input`; any other
///         overlap is refused.
/// Result  the bits that all_reduce() would leave.
/// Cost    in the heap, n ranks, S bytes: 2 syncs; all ranks together read nS and write S.
/// Errors  as all_reduce(); throws Error(kInvalidArgument) for a root outside the group.
Work reduce(at::Tensor& output, const at::Tensor& input, int root, const Group& group,
            const ReduceOptions& options = {},
            std::source_location call_site = std::source_location::current());

/// The same in place: replaces `tensor` on the root and leaves it alone elsewhere.
Work reduce(at::Tensor& tensor, int root, const Group& group, const ReduceOptions& options = {},
            std::source_location call_site = std::source_location::current());

}  // namespace hanji::comm
