#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <source_location>
#include <string_view>

#include "hanji/comm/group.h"
#include "hanji/comm/work.h"
#include "hanji/schedule/operation.h"

namespace hanji::comm {

struct AllReduceOptions {
  schedule::ReduceOp op = schedule::ReduceOp::kSum;
  uint64_t tag = 0;             ///< As CallOptions::tag.
  std::string_view label = {};  ///< As CallOptions::label.
};

/// Replaces `tensor`, on every rank of `group`, by its element-wise reduction over all ranks.
///
/// Shape   any, contiguous, the same number of elements and dtype on every rank. Unchanged.
/// Result  bit-identical on all ranks. With Bits::kRun floating sums follow one pairwise tree over
///         the ranks, so the bits depend neither on size nor on bucket, engine or arrival.
/// Order   starts before returning; every rank issues the group's collectives in one order.
/// Cost    in the heap, n ranks, S bytes: 2 syncs, 2nS bytes of memory traffic.
/// Errors  throws Error(kInvalidArgument) if not contiguous or part of an autograd graph,
///         Error(kUnsupported) for a dtype, layout or device nobody here serves; else Work::wait().
Work all_reduce(at::Tensor& tensor, const Group& group, const AllReduceOptions& options = {},
                std::source_location call_site = std::source_location::current());

}  // namespace hanji::comm
