#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "hanji/base/status.h"

namespace hanji::comm {

class GroupState;

/// One collective on its way. A cheap handle; a default one is complete.
///
/// Dropping it unwaited is legal: its group finishes it in order and keeps its tensors until then.
class [[nodiscard]] Work {
 public:
  Work() = default;
  Work(std::shared_ptr<GroupState> group, uint64_t ticket);

  /// Drives the group until this call is complete.
  ///
  /// Errors  throws Error: kMismatch (on every rank, naming the calls that differ), kTimeout (naming
  ///         the ranks that did not come), kPeerLost (naming the dead). The group is then unusable.
  void wait();

  /// Calls `told` once, with ok or the group's error, when this call is complete: at once if it is,
  /// else from the thread that notices. `told` must not throw, nor wait for calls of the group.
  void then(std::function<void(const Status&)> told);

  /// True once the result is there. Does bounded work, never blocks.
  /// Errors  as wait().
  bool done();

 private:
  std::shared_ptr<GroupState> group_;
  uint64_t ticket_ = 0;
};

}  // namespace hanji::comm
