#pragma once

#include <functional>
#include <memory>
#include <source_location>

#include "hanji/comm/group.h"
#include "hanji/comm/work.h"

namespace hanji::comm {

class CallBatch;

/// Several calls of one group, its messages included, submitted as one: from here to submit(), what
/// is called on `group` is kept back, and the Work of each ends with the Work of all.
///
/// Result  of each call as if it were made alone. Small all_reduces in a row of one type and op
///         become one call of the engine, with the same bits.
/// Order   every rank makes the same batch. The messages of a batch may go in both directions: none
///         waits for another.
/// Errors  submit() throws what a call alone would throw. Waiting for a call of a batch before
///         submit() throws Error(kInvalidArgument), and so does a batch inside a batch.
/// Thread  the one that opened it makes all calls on the group until submit().
class Coalesced {
 public:
  explicit Coalesced(Group group, std::source_location call_site = std::source_location::current());
  /// Drops the calls that were not submitted.
  ~Coalesced();
  Coalesced(const Coalesced&) = delete;
  Coalesced& operator=(const Coalesced&) = delete;

  /// Once.
  Work submit();

 private:
  void close();

  Group group_;
  std::shared_ptr<CallBatch> batch_;
};

/// coalesce(group, [&] { all_reduce(a, group); send(b, 1, group); recv(c, 1, group); }).wait();
Work coalesce(const Group& group, const std::function<void()>& calls,
              std::source_location call_site = std::source_location::current());

}  // namespace hanji::comm
