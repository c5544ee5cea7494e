#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "hanji/schedule/operation.h"

namespace hanji::comm::c10d {

using Tensors = std::vector<at::Tensor>;

/// `tensor` as a collective moves it: detached and contiguous, by a copy where it is not.
at::Tensor to_move(const at::Tensor& tensor);

/// The same as a collective reduces it: with a dtype that the engine adds. A copy where that is
/// another one: int32 for int8 and int16, uint8 for bool; complex as a view of real pairs.
at::Tensor to_reduce(const at::Tensor& tensor, schedule::ReduceOp op);

/// A tensor to receive into: `tensor` itself where to_move() would not copy it.
at::Tensor to_fill(const at::Tensor& tensor);

/// The same for what a reduction leaves, in the dtype of to_reduce().
at::Tensor to_fill_reduced(const at::Tensor& tensor, schedule::ReduceOp op);

/// Writes what a call left in `staged` to the caller's tensor; nothing if they are the same memory.
void put_back(const at::Tensor& tensor, const at::Tensor& staged);

/// All elements of the list, one tensor after another.
at::Tensor flatten(const Tensors& tensors);

/// The inverse: copies pieces of `flat` to the tensors.
void spread(const at::Tensor& flat, const Tensors& tensors);

/// Elements of each tensor; empty if all have as many as the first one.
std::vector<int64_t> uneven_counts(const Tensors& tensors);

}  // namespace hanji::comm::c10d
