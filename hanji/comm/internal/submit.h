#pragma once

#include "hanji/comm/group.h"
#include "hanji/comm/internal/engine.h"
#include "hanji/comm/work.h"

namespace hanji::comm {

/// Refuses a tensor that no collective can serve: undefined, not strided, not contiguous, part of
/// an autograd graph, or on a device that the group's engine does not move.
void check_tensor(const at::Tensor& tensor, std::string_view role, const Request& request,
                  const Group& group);

/// The dtype of a tensor that is reduced; refuses one that nobody here can add.
DType reduced_dtype(const at::Tensor& tensor, const Request& request);

/// Refuses unless `tensor` has `expected` elements.
void check_count(const at::Tensor& tensor, std::string_view role, int64_t expected,
                 const Request& request);

/// Refuses an input and output of two dtypes or devices, and overlap, except where the input's
/// element `input_offset` is the output's element `output_offset`.
void check_pair(const Request& request, int64_t input_offset, int64_t output_offset);

/// Hands the request to the group. The output's version counter moves, as after any write in place.
Work submit(Request request, const Group& group);

}  // namespace hanji::comm
