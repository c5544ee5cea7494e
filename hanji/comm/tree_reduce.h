#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <source_location>

#include "hanji/comm/call_options.h"
#include "hanji/comm/group.h"
#include "hanji/comm/work.h"
#include "hanji/schedule/grain_tree.h"

namespace hanji::comm {

/// Sums the partial buffers of all ranks by the grain tree and gives every rank the whole sum.
///
/// Shape   `parts` is [k or more, n], each row contiguous, k the rank's number of partial buffers in
///         `tree` (they differ between ranks); `output` has count <= n elements, the same
///         everywhere. `output` may be exactly the first part; any other overlap is refused.
/// Result  the bits of one rank that folds all grains by the same tree, each node in the tensors' dtype.
/// Cost    in the heap: 2 syncs; every partial buffer is read once, the sum written once per rank.
///         Between hosts: schedule::tree_exchange().
/// Errors  as all_reduce(); throws Error(kInvalidArgument) if k is not the tree's.
Work tree_all_reduce(const at::Tensor& parts, at::Tensor& output, const schedule::GrainTree& tree,
                     const Group& group, const CallOptions& options = {},
                     std::source_location call_site = std::source_location::current());

/// The same with the step list that schedule::tree_all_reduce() made of the tree for
/// output.numel(): a caller that reduces in every step makes it once.
Work tree_all_reduce(const at::Tensor& parts, at::Tensor& output,
                     const std::shared_ptr<const schedule::StepList>& steps, const Group& group,
                     const CallOptions& options = {},
                     std::source_location call_site = std::source_location::current());

}  // namespace hanji::comm
