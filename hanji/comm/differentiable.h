#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <source_location>
#include <vector>

#include "hanji/comm/group.h"

/// Collectives as functions that autograd differentiates: each returns a new tensor, complete, and
/// its backward is a collective too. Sums only.
///
/// Shape   tensors are divided along their first dimension: `rows` says how many of its rows each
///         rank has (all_to_all: how many rank i gives to rank j, at i * size() + j); by default all
///         have the same.
/// Result  gradients of the sum of all ranks' losses; they can be differentiated again.
/// Order   every rank calls the same functions in one order, and lets every result take part in its
///         backward; a result that is empty or zero on a rank can be added to anything there.
/// Cost    as the collective; tensors move in place if the input lies in the heap.
/// Errors  throws as the collective and as Work::wait().
namespace hanji::comm::differentiable {

using Rows = std::vector<int64_t>;

/// Sum over all ranks, on every rank. Backward: the same.
at::Tensor all_reduce(const at::Tensor& input, const Group& group,
                      std::source_location call_site = std::source_location::current());

/// Sum over all ranks of their inputs times their factors, on every rank. Backward: the sum of the
/// gradients, times the factor.
at::Tensor all_reduce(const at::Tensor& input, double factor, const Group& group,
                      std::source_location call_site = std::source_location::current());

/// Gives the input to the rank `to` and returns what the rank `from` gave, both at once: every rank
/// of a ring may call it. Either may be this rank, if both are. `num_rows` of what comes; -1: as the
/// input has. Backward: the same, the other way round.
at::Tensor send_recv(const at::Tensor& input, int to, int from, const Group& group,
                     int64_t num_rows = -1,
                     std::source_location call_site = std::source_location::current());

/// The root's input on every rank; all inputs have one shape. Backward: reduce; other ranks' inputs
/// get gradients of zero.
at::Tensor broadcast(const at::Tensor& input, int root, const Group& group,
                     std::source_location call_site = std::source_location::current());

/// Sum over all ranks on the root, zeros of that shape elsewhere. Backward: broadcast.
at::Tensor reduce(const at::Tensor& input, int root, const Group& group,
                  std::source_location call_site = std::source_location::current());

/// The inputs of all ranks, one after another. Backward: reduce_scatter.
at::Tensor all_gather(const at::Tensor& input, const Group& group, const Rows& rows = {},
                      std::source_location call_site = std::source_location::current());

/// This rank's rows of the sum of all inputs. Backward: all_gather.
at::Tensor reduce_scatter(const at::Tensor& input, const Group& group, const Rows& rows = {},
                          std::source_location call_site = std::source_location::current());

/// The inputs of all ranks on the root, no rows elsewhere. Backward: scatter.
at::Tensor gather(const at::Tensor& input, int root, const Group& group, const Rows& rows = {},
                  std::source_location call_site = std::source_location::current());

/// This rank's rows of the root's input; all inputs have one shape. Backward: gather; other ranks'
/// inputs get gradients of zero.
at::Tensor scatter(const at::Tensor& input, int root, const Group& group, const Rows& rows = {},
                   std::source_location call_site = std::source_location::current());

/// The rows that each rank has for this one, one rank after another. Backward: all_to_all back.
at::Tensor all_to_all(const at::Tensor& input, const Group& group, const Rows& rows = {},
                      std::source_location call_site = std::source_location::current());

}  // namespace hanji::comm::differentiable
