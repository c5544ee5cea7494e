#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <source_location>
#include <vector>

#include "hanji/comm/group.h"

namespace hanji::comm {

/// How much of each dimension each rank has; empty: see transpose().
struct TransposeSizes {
  std::vector<int64_t> from = {};  ///< Before, of `from_dim`.
  std::vector<int64_t> to = {};    ///< After, of `to_dim`.
};

/// Moves a shard from one dimension to another: `input` is this rank's part along `from_dim` of a
/// tensor whose `to_dim` is whole; the result is its part along `to_dim`, with `from_dim` whole.
///
/// Shape   negative dimensions count from the end. By default all ranks have as much of `from_dim`
///         as this one, and `to_dim` is divided as evenly as can be, lower ranks first.
/// Result  a new contiguous tensor; its backward moves the gradient back by the same way.
/// Order   a collective: every rank of `group` calls it, forward and backward.
/// Cost    one all_to_all, and one copy before and after it: the pieces of one rank become
///         contiguous in the heap on their way.
/// Errors  throws Error(kInvalidArgument) for dimensions or sizes that do not fit; as all_to_all()
///         and Work::wait().
at::Tensor transpose(const at::Tensor& input, int64_t from_dim, int64_t to_dim, const Group& group,
                     const TransposeSizes& sizes = {},
                     std::source_location call_site = std::source_location::current());

}  // namespace hanji::comm
