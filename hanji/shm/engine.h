#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "hanji/base/status.h"
#include "hanji/shm/call.h"
#include "hanji/shm/segment.h"

namespace hanji::trace {
class Recorder;
}

namespace hanji::shm {

struct EngineOptions {
  /// How long a call may wait for a peer before wait() gives up with kTimeout.
  std::chrono::nanoseconds deadline = std::chrono::seconds(300);
  /// Polls before a wait begins to yield; -1: 2000 where each thread has a processor, else 4.
  int spin = -1;
  /// Processors of all ranks together; 0: the union of their affinity masks. A smaller quota of
  /// processor time is known to the caller only.
  int usable_processors = 0;
  int threads_per_rank = 1;             ///< Threads that compute, and need a processor each.
  trace::Recorder* recorder = nullptr;  ///< One event per call; the caller keeps it alive.
  std::optional<uint32_t> epoch;        ///< The same on all members; by default the segment's.
};

/// What an engine did so far.
struct Stats {
  int64_t num_calls = 0;  ///< Completed.
  int64_t bytes = 0;      ///< Sum of count * element size over completed calls.
  int64_t wire_bytes =
      0;  ///< That this rank read from others or wrote to them, by the lists that ran.
  int64_t wait_ns = 0;  ///< In wait(), past the spinning, for peers.
  int64_t busy_ns = 0;  ///< In copies and reductions of 64 KiB and more; of 4 KiB if traced.
  // Of wait(), where calls are traced:
  int64_t peers_ns = 0;  ///< While a peer had more to move than this rank.
  int64_t skew_ns = 0;   ///< While a peer had not come yet, or computed.
};

/// Runs the collectives of one rank in one group through shared memory.
///
/// Calls run in the order of submit(), each as the step lists in it say: the engine decides
/// nothing. Before any byte of another rank is used, all ranks compare what they were called
/// with. After a failure the engine is poisoned: every later call returns the same status.
///
/// Order   every rank of the group creates its engine and submits the same calls in one order.
/// Errors  submit(): kInvalidArgument or kUnsupported for this rank's own arguments; nothing was
///         started. advance() and wait(): kMismatch on all ranks, naming rank, call site and both
///         values; kTimeout, naming the absent ranks and their last calls; kPeerLost;
///         kCancelled, naming who did.
/// Thread  one at a time. Engines of different groups are independent.
class Engine {
 public:
  /// `members` are ranks of the segment, the same and in the same order on every member;
  /// `my_rank` is one of them. Groups with a common member have different ids in [0, 256).
  static Result<std::unique_ptr<Engine>> create(std::shared_ptr<Segment> segment, int group_id,
                                                std::vector<int> members, int my_rank,
                                                const EngineOptions& options = {});
  /// One end of the channel that carries messages of rank `sender` of the segment to `receiver`: a
  /// group of these two, in this order, for calls of send. `my_rank` is one of them.
  /// Order   message by message both ranks submit the same call; which other groups and channels
  ///         they use meanwhile does not matter.
  static Result<std::unique_ptr<Engine>> create_channel(std::shared_ptr<Segment> segment,
                                                        int sender, int receiver, int my_rank,
                                                        const EngineOptions& options = {});
  ~Engine();

  /// Starts a call, as advance() does. Returns its ticket: 1, 2, 3, ...
  Result<uint64_t> submit(const Call& call);
  /// Works on the open calls for as long as no peer is waited for, at most about 4 MiB of memory
  /// traffic. Never blocks.
  Status advance();
  /// Whether what is waited for can still come: as wait() past its spinning, without waiting. For
  /// callers that poll advance() instead of waiting; the deadline counts from the first check
  /// since the last progress.
  Status check();
  /// Whether the call is complete. An engine that failed completes no more: advance() tells.
  bool done(uint64_t ticket) const;
  /// True if no call is open here and another rank has begun one that this rank did not yet submit:
  /// of a channel, that a message waits to be received.
  bool called() const;
  /// For callers that poll advance(): from here on what finds no progress is waiting, as in wait().
  void set_waiting(bool waiting);
  /// Whether peers_ns and skew_ns are counted.
  bool traced() const;
  /// Works and waits until the call is complete.
  Status wait(uint64_t ticket);
  /// As wait(), and works on the open calls of `others` meanwhile: ranks that wait for calls of
  /// several groups in different orders all finish.
  Status wait(uint64_t ticket, const std::vector<Engine*>& others);

  /// Ends the call, and with it the group, on every rank: waits and later calls there return
  /// kCancelled naming this rank. A rank that has completed the call keeps its result. A call that
  /// others may have begun cannot be withdrawn alone.
  /// Result  false if the call is complete here, and nothing was done.
  /// Thread  any, also while another waits.
  bool cancel(uint64_t ticket);
  /// The members that have begun the call, and that have its result: a bit each, by group rank.
  /// Thread  any.
  uint64_t arrived(uint64_t ticket) const;
  uint64_t delivered(uint64_t ticket) const;

  /// The engine fails when this epoch of the segment ends.
  uint32_t epoch() const;
  /// More threads of ranks than processors: a polling rank keeps another rank from its work.
  bool oversubscribed() const;
  int rank() const;  ///< In the group.
  int size() const;
  const Stats& stats() const;

 private:
  class Core;
  explicit Engine(std::unique_ptr<Core> core);
  static Result<std::unique_ptr<Engine>> make(std::shared_ptr<Segment> segment, int group_id,
                                              std::vector<int> members, int my_rank,
                                              const EngineOptions& options);
  std::unique_ptr<Core> core_;
};

}  // namespace hanji::shm
