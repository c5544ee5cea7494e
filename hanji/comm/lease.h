#pragma once

#include <ATen/core/Tensor.h>

#include <chrono>
#include <memory>
#include <source_location>
#include <vector>

#include "hanji/comm/call_options.h"
#include "hanji/comm/group.h"

namespace hanji::comm {

/// The shards of all ranks as tensors, without a copy: each lies where its owner has it, mapped for
/// reading only. A write to another rank's shard ends the process.
///
/// Until all have released its shard, an owner must not write to it. What is written meanwhile is
/// told when the owner releases, or waits for the others, by torch's version counter: Error naming
/// who still held the shard. Writes that torch does not count are the owner's own responsibility.
///
/// A cheap handle; the last one releases. The memory stays until all have released it, whatever the
/// owner does with its tensor.
class Lease {
 public:
  class State;
  explicit Lease(std::shared_ptr<State> state) : state_(std::move(state)) {}

  /// By rank; the own one is the tensor that was given. Not to be used after release().
  /// Errors  throws Error(kInvalidArgument) after release().
  const std::vector<at::Tensor>& shards() const;
  const at::Tensor& operator[](int rank) const { return shards()[rank]; }

  /// This rank no longer looks at the shards of the others.
  /// Errors  throws Error(kInvalidArgument) if this rank wrote to its own shard while others held it,
  ///         or still has a tensor of shards(), a view or an autograd graph's among them.
  void release();

  /// Who still looks at this rank's shard; nobody: its owner may write.
  std::vector<int> holders() const;
  /// Releases, and waits until nobody looks at this rank's shard.
  /// Errors  as release(); throws Error(kTimeout) naming who holds it, Error(kPeerLost) once the job
  ///         has lost a rank.
  void wait_released(std::chrono::nanoseconds deadline = std::chrono::seconds(300));

 private:
  std::shared_ptr<State> state_;
};

/// A view of the shards of all ranks of `group`.
///
/// Shape   `shard` is contiguous and lies in this rank's arena of the heap; all have one dtype and
///         may differ in size: one with whole rows of the own shard's shape has that many rows,
///         any other one dimension.
/// Order   a collective, complete when it returns: what any rank wrote to its shard before is seen.
/// Cost    one sync; no byte of a shard moves.
/// Errors  throws Error on all ranks: kMismatch for two dtypes, kInvalidArgument naming who gave a
///         shard outside the heap; Error(kUnsupported) over engines without shared memory.
Lease all_gather_view(const at::Tensor& shard, const Group& group, const CallOptions& options = {},
                      std::source_location call_site = std::source_location::current());

}  // namespace hanji::comm
