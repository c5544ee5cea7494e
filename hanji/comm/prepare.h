#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <source_location>
#include <string_view>
#include <vector>

#include "hanji/comm/group.h"
#include "hanji/comm/work.h"
#include "hanji/schedule/operation.h"

namespace hanji::comm {

struct PrepareOptions {
  schedule::ReduceOp op = schedule::ReduceOp::kSum;  ///< Of a reduction.
  int root = 0;                                      ///< Of a routine that has one.
  uint64_t tag = 0;                                  ///< As CallOptions::tag.
  std::string_view label = {};                       ///< As CallOptions::label.
  std::chrono::nanoseconds deadline{0};              ///< As CallOptions::deadline; of each start.
  double factor = 1;                                 ///< As AllReduceOptions::factor.
  bool in_place = false;  ///< Of all_to_all: input and output are one buffer, on every rank.
};

/// A collective that was checked and chosen once, by prepare(), and is started any number of times,
/// on other tensors of the same shape or on the same ones.
///
/// Result  of each start that of the plain function: the same bits, bytes, trace and errors.
/// Order   one start is open at a time; starts count as calls of the group, in its one order. A start
///         matches starts of the same Call on the other ranks only: that of another Call of equal
///         shape, or a plain function, is a kMismatch on all ranks.
/// Cost    of a start that of the plain function without its look-ups. On shared memory starts
///         allocate nothing once warm.
/// Thread  one at a time.
class Call {
 public:
  /// Can only be assigned to.
  Call();
  Call(Call&&) noexcept;
  Call& operator=(Call&&) noexcept;
  /// What is open is finished by the group, as if its Work had been dropped.
  ~Call();

  /// Starts the call on these tensors and keeps neither longer than the call is open.
  ///
  /// Shape   as the plain function's for the prepared dtype and counts. A tensor that this rank
  ///         neither gives nor gets (the input of a broadcast, the output of a reduce, beside the
  ///         root) is not looked at.
  /// Errors  throws Error(kInvalidArgument), naming the tensor and both values, for another dtype or
  ///         count, for overlap, and while the last start is open; Error(kUnsupported) for a device
  ///         that the group does not serve. Nothing has moved then, and peers that did start wait
  ///         until their deadline. Else as Work::wait().
  Work start(at::Tensor& output, const at::Tensor& input,
             std::source_location call_site = std::source_location::current());
  /// The same in place.
  Work start(at::Tensor& tensor, std::source_location call_site = std::source_location::current());

  /// Keeps tensors for start() without any. They are checked here and, for resizes, at each start.
  /// Errors  as start().
  void bind(at::Tensor& output, const at::Tensor& input,
            std::source_location call_site = std::source_location::current());
  /// Starts the call on the tensors that were bound; of a barrier on none.
  /// Errors  as start(); throws Error(kInvalidArgument) if none are bound.
  Work start(std::source_location call_site = std::source_location::current());

 private:
  struct Prepared;
  friend Call prepare(schedule::Routine routine, c10::ScalarType dtype,
                      const std::vector<int64_t>& counts, const Group& group,
                      const PrepareOptions& options, std::source_location call_site);
  explicit Call(std::unique_ptr<Prepared> prepared);
  Prepared& prepared() const;
  void check_closed(const std::source_location& call_site);

  std::unique_ptr<Prepared> prepared_;
};

/// Makes a call that all ranks of `group` will start: checks its arguments, chooses its algorithm,
/// makes its step list, and compares them across the ranks.
///
/// Shape   `counts` holds elements of `dtype`: one number where all ranks have as many (all_reduce,
///         reduce, broadcast: of the tensor; all_gather, gather, reduce_scatter, scatter: of a
///         rank's share; all_to_all: of a slice), else one for each rank, or for each pair of ranks
///         (all_to_all); none for a barrier.
/// Order   a collective, complete when it returns.
/// Cost    one all_gather of 192 bytes.
/// Errors  throws Error(kMismatch) on all ranks, naming those that differ, both calls and their
///         sites, also where a rank has refused its own arguments; the group stays usable.
///         Error(kInvalidArgument) for arguments that cannot be, a send or a tree_reduce (whose
///         tree is its preparation), and inside a batch of calls; Error(kUnsupported) for a dtype or
///         op that the engine has not. Else as Work::wait().
Call prepare(schedule::Routine routine, c10::ScalarType dtype, const std::vector<int64_t>& counts,
             const Group& group, const PrepareOptions& options = {},
             std::source_location call_site = std::source_location::current());

}  // namespace hanji::comm
