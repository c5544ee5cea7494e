#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "hanji/base/status.h"

namespace hanji::comm {

class GroupState;
class CallBatch;

/// One collective on its way, or a batch of calls (coalesced.h). A cheap handle; a default one is
/// complete.
///
/// Dropping it unwaited is legal: its group finishes it in order and keeps its tensors until then.
class [[nodiscard]] Work {
 public:
  Work() = default;
  /// `sequence` counts the group's calls, `ticket` those of its engine.
  Work(std::shared_ptr<GroupState> group, uint64_t sequence, uint64_t ticket);
  explicit Work(std::shared_ptr<const CallBatch> batch);

  /// False for a default one, of which there is nothing to wait for.
  bool begun() const { return group_ != nullptr; }

  /// Drives the group until this call is complete.
  ///
  /// Errors  throws Error: kMismatch (on every rank, naming the calls that differ), kTimeout (naming
  ///         the ranks that did not come), kPeerLost (naming the dead), kCancelled (naming who did).
  ///         The group is then unusable.
  void wait();

  /// Calls `told` once, with ok or the group's error, when this call is complete: at once if it is,
  /// else from the thread that notices. `told` must not throw, nor wait for calls of the group.
  void then(std::function<void(const Status&)> told);

  /// True once the result is there. Does bounded work, never blocks.
  /// Errors  as wait().
  bool done();

  /// Ends this call, and with it the group, on every rank: waits there end now with kCancelled, and
  /// so does every later call. A call cannot be withdrawn alone, since peers may have begun it. A
  /// rank that has its result keeps it. Group::survivors() makes a new group.
  ///
  /// Result  false if the call is complete here; nothing is done then.
  /// Errors  throws Error(kUnsupported) over engines without shared memory.
  /// Thread  any, also while another waits.
  bool cancel();

  /// The ranks that have begun this call, and those that have its result, ascending; both ends of a
  /// message by their ranks in the group that it was called on. Of a batch: those that all calls
  /// have in common. `hanji debug` shows the same of a running job.
  /// Errors  throws Error(kUnsupported) over engines without shared memory.
  /// Thread  any.
  std::vector<int> arrived() const;
  std::vector<int> delivered() const;

  /// Of a message: what its two ends are called by arrived() and delivered().
  void name_ends(std::array<int, 2> sender_and_receiver) { ends_ = sender_and_receiver; }

 private:
  friend class WeakWork;
  enum class Flag : uint8_t { kArrived, kDelivered };
  std::vector<int> ranks_at(Flag flag) const;

  std::shared_ptr<GroupState> group_;
  uint64_t sequence_ = 0;
  uint64_t ticket_ = 0;
  std::array<int, 2> ends_ = {-1, -1};
  std::shared_ptr<const CallBatch> batch_;
};

/// A Work that does not keep its group alive, for what may outlive the group.
class WeakWork {
 public:
  WeakWork() = default;
  explicit WeakWork(const Work& work)
      : group_(work.group_), sequence_(work.sequence_), ticket_(work.ticket_) {}
  /// One that was not begun if the group has gone.
  Work lock() const { return {group_.lock(), sequence_, ticket_}; }

 private:
  std::weak_ptr<GroupState> group_;
  uint64_t sequence_ = 0;
  uint64_t ticket_ = 0;
};

}  // namespace hanji::comm
