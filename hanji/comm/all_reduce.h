#pragma once

#include <ATen/core/Tensor.h>

#include <chrono>
#include <cstdint>
#include <source_location>
#include <string_view>

#include "hanji/comm/group.h"
#include "hanji/comm/work.h"
#include "hanji/schedule/operation.h"

namespace hanji::comm {

struct AllReduceOptions {
  schedule::ReduceOp op = schedule::ReduceOp::kSum;
  uint64_t tag = 0;                      ///< As CallOptions::tag.
  std::string_view label = {};           ///< As CallOptions::label.
  std::chrono::nanoseconds deadline{0};  ///< As CallOptions::deadline.
  double factor = 1;  ///< Of premul_sum: what this rank's elements count times. Its own.
};

/// Replaces `tensor`, on every rank of `group`, by its element-wise reduction over all ranks.
///
/// Shape   any, contiguous, the same number of elements and dtype on every rank. Unchanged.
/// Result  bit-identical on all ranks. With Bits::kRun floating sums follow one pairwise tree over
///         the ranks, so the bits depend neither on size nor on bucket, engine or arrival. The
///         float8 types are added in float32 and rounded once; of bool, sum means "or".
/// Order   starts before returning; every rank issues the group's collectives in one order.
/// Cost    in the heap, n ranks, S bytes: 2 syncs, 2nS bytes of memory traffic.
/// Errors  throws Error(kInvalidArgument) if not contiguous or part of an autograd graph,
///         Error(kUnsupported) for a dtype, layout or device nobody here serves; else Work::wait().
Work all_reduce(at::Tensor& tensor, const Group& group, const AllReduceOptions& options = {},
                std::source_location call_site = std::source_location::current());

/// The same out of place: fills `output` and leaves `input` alone.
///
/// Shape   `output` is as large as `input` and of its dtype; they may be the same, but not overlap.
Work all_reduce(at::Tensor& output, const at::Tensor& input, const Group& group,
                const AllReduceOptions& options = {},
                std::source_location call_site = std::source_location::current());

}  // namespace hanji::comm
