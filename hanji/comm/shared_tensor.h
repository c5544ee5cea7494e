#pragma once

#include <ATen/core/Tensor.h>

#include <source_location>
#include <string_view>

#include "hanji/comm/group.h"

namespace hanji::comm {

/// True if the ranks of `group` lie on one host and reach each other's heap.
bool shares_memory(const Group& group);
/// True if the rank `peer` of `group` lies on this rank's host.
bool shares_memory(const Group& group, int peer);

/// One tensor that all ranks of `group` see and may write: it lies once, in the arena of the rank
/// `root`, whose bytes of `category` it counts as.
///
/// Shape   contiguous, every byte zero.
/// Result  what one rank writes another sees after a barrier; who writes what is the callers' to
///         agree. The memory stays until all ranks have dropped the tensor.
/// Order   a collective, complete when it returns.
/// Cost    one sync.
/// Errors  throws Error(kUnsupported) unless shares_memory(); Error(kOutOfMemory) on `root`.
at::Tensor shared_zeros(at::IntArrayRef sizes, c10::ScalarType dtype, int root, const Group& group,
                        std::string_view category,
                        std::source_location call_site = std::source_location::current());

/// The values of a tensor of shared_zeros() in memory that this rank alone writes: a write here changes
/// neither `shared` nor what other ranks see.
///
/// Result  a contiguous tensor, which keeps `shared` alive. Elements that were not written here are those
///         of `shared`, on the same pages: no rank writes to `shared` while the result is read.
/// Cost    no copy; a page of private memory for each page that is written.
/// Errors  throws Error(kInternal) for a tensor outside the group's shared memory, and what mmap says.
at::Tensor private_view(const at::Tensor& shared, const Group& group);

}  // namespace hanji::comm
