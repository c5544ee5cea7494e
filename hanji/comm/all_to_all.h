#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <source_location>
#include <vector>

#include "hanji/comm/call_options.h"
#include "hanji/comm/group.h"
#include "hanji/comm/work.h"

namespace hanji::comm {

/// Fills slice i of `output`, on rank r of `group`, with slice r of the `input` of rank i.
///
/// Shape   `input` and `output` have the same number of elements, a multiple of size(); both
///         contiguous and of one dtype. They may be exactly the same memory, then on every rank;
///         any other overlap is refused.
/// Cost    in the heap, n ranks, S bytes each: 2 syncs, one copy of S bytes per rank; in place half
///         of that again, in a processor's cache.
/// Errors  as all_reduce().
Work all_to_all(at::Tensor& output, const at::Tensor& input, const Group& group,
                const CallOptions& options = {},
                std::source_location call_site = std::source_location::current());

/// The same where rank i gives counts[i * size() + j] elements to rank j, 0 included: `input` has
/// row r, `output` column r of them. Not in place.
///
/// Order   all ranks give the same counts, or wait() throws Error(kMismatch) on all of them before
///         a byte is used. exchange_counts() makes them of what each rank knows.
Work all_to_all(at::Tensor& output, const at::Tensor& input, const std::vector<int64_t>& counts,
                const Group& group, const CallOptions& options = {},
                std::source_location call_site = std::source_location::current());

/// The counts of all ranks out of `given`, the elements that this rank gives to each rank.
///
/// Order   a collective: returns when every rank of `group` has called it.
/// Errors  throws as Work::wait(), and Error(kInvalidArgument) unless `given` has size() counts.
std::vector<int64_t> exchange_counts(
    const std::vector<int64_t>& given, const Group& group, const CallOptions& options = {},
    std::source_location call_site = std::source_location::current());

}  // namespace hanji::comm
