#pragma once

#include <c10/core/Device.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "hanji/base/clock.h"
#include "hanji/comm/internal/engine.h"

namespace hanji::comm {

/// Something under way on a wire: a message, a routine. Its buffers are the caller's until it is
/// done.
class Pending {
 public:
  virtual ~Pending() = default;
  /// Bounded work; on a wire that blocks, waits until it is so.
  /// Errors  throws Error; kTimeout where the wire keeps its deadline.
  virtual bool done() = 0;
};

/// What carries bytes between the ranks of a group that do not share memory. A MessageEngine makes
/// every routine out of it.
///
/// Order   messages between two ranks arrive in the order in which they were sent; receives meet
///         them in the order in which they were posted.
/// Errors  what is posted throws Error.
/// Thread  one at a time.
class Wire {
 public:
  virtual ~Wire() = default;

  virtual std::string_view name() const = 0;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual bool serves(c10::Device device) const = 0;
  /// True if run() carries the routine out, with shares that are even or not.
  virtual bool native(schedule::Routine routine, Shares shares) const = 0;
  /// True if Pending::done() waits: the engine then calls the wire from a thread of its own.
  virtual bool blocks() const = 0;
  /// Until when what is posted from now on may take. A wire that blocks keeps it: done() throws
  /// Error(kTimeout) then, and nothing of it is left running.
  virtual void keep(base::Deadline /*until*/) {}
  /// Refuses a caller that may not use the wire, for example from this thread.
  virtual Status check_caller() const { return {}; }

  virtual std::unique_ptr<Pending> send(const void* from, int64_t bytes, int peer) = 0;
  virtual std::unique_ptr<Pending> receive(void* to, int64_t bytes, int peer) = 0;
  /// `mine` of every rank, one after another, into `all` of every rank. Ends on no rank before all
  /// have begun it.
  virtual std::unique_ptr<Pending> gather(std::span<const std::byte> mine,
                                          std::span<std::byte> all) = 0;
  /// The wire's own algorithm.
  virtual std::unique_ptr<Pending> run(const Request& request) = 0;

  /// Ranks whose part of the last gather has not come; empty where the wire cannot tell.
  virtual std::vector<int> absent() const { return {}; }
  /// Gives up what is under way, after an error. False if a late peer may still write to buffers
  /// that were given away: they must stay.
  virtual bool abandon() noexcept { return true; }
};

}  // namespace hanji::comm
