#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <source_location>
#include <vector>

#include "hanji/comm/all_reduce.h"
#include "hanji/comm/group.h"
#include "hanji/comm/work.h"

namespace hanji::comm {

using ReduceScatterOptions = AllReduceOptions;

/// Fills `output`, on rank r of `group`, with the reduction over all ranks of slice r of `input`.
///
/// Shape   `input` has size() times the elements of `output`; both contiguous and of one dtype.
///         `output` may be exactly its own slice of `input`; any other overlap is refused.
/// Result  the bits that all_reduce() of `input` would leave in slice r.
/// Cost    in the heap, n ranks, S bytes of output: 2 syncs, (n + 1)S bytes of traffic per rank.
/// Errors  as all_reduce().
Work reduce_scatter(at::Tensor& output, const at::Tensor& input, const Group& group,
                    const ReduceScatterOptions& options = {},
                    std::source_location call_site = std::source_location::current());

/// The same where slice r of the input has counts[r] elements, 0 included. All ranks give the same
/// counts, or wait() throws Error(kMismatch) on all of them before a byte is used.
Work reduce_scatter(at::Tensor& output, const at::Tensor& input, const std::vector<int64_t>& counts,
                    const Group& group, const ReduceScatterOptions& options = {},
                    std::source_location call_site = std::source_location::current());

}  // namespace hanji::comm
