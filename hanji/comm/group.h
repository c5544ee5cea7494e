#pragma once

#include <c10/core/Device.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hanji/comm/heap.h"
#include "hanji/comm/rank_names.h"

namespace hanji::cost {
class Chooser;
}
namespace hanji::trace {
class Recorder;
}

namespace hanji::comm {

class GroupState;

/// Which promise floating sums keep on engines that have algorithms of their own.
enum class Bits : uint8_t {
  kRun,   ///< One order per element, whatever the engine: the same bits run after run.
  kFast,  ///< The engine's own algorithm; its order is its own.
};

/// Who moves the bytes.
enum class Progress : uint8_t {
  kCaller,  ///< Submits, waits and advance(): no helper thread steals from the computation.
  kThread,  ///< A thread of the group as well, so that calls complete unwaited.
};

struct GroupOptions {
  std::string name = "world";                                     ///< Said in messages.
  std::chrono::nanoseconds deadline = std::chrono::seconds(300);  ///< Of every wait.
  Bits bits = Bits::kRun;
  Progress progress = Progress::kCaller;
  trace::Recorder* recorder = nullptr;  ///< Must outlive the group; null records nothing.
  int usable_processors = 0;  ///< Of all ranks together; 0: the union of their affinity masks.
  int threads_per_rank = 1;  ///< Threads that compute; ranks poll less where they share processors.
  /// Chooses step lists. Its rates must be the same on every rank; null takes typical rates.
  std::shared_ptr<cost::Chooser> chooser = {};
  /// Where ranks share memory, that knows theirs by itself. A subgroup has those of its members.
  RankNames rank_names = {};
  int id = 0;  ///< Number of the group in traces, the same on its members; a subgroup gets its own.
};

/// What calls cost a rank, apart from each other: moving bytes, and waiting for a slower rank.
struct CallTimes {
  int64_t transfer_ns = 0;  ///< Bytes were moved, by whatever thread.
  int64_t exposed_ns = 0;   ///< Of it, while this rank's thread moved them or waited for them.
  int64_t skew_ns = 0;      ///< In wait(), while another rank had not called yet, or computed.
};

/// Counted since the group was made, without what prepare() itself moves.
struct Stats {
  int64_t operations = 0;  ///< Collectives completed.
  int64_t bytes = 0;       ///< Of this rank's tensors in them.
  int64_t wire_bytes =
      0;  ///< Read from other ranks or written to them; 0 where no memory is shared.
  /// Of tensors, sent through an engine between processes: by a step list exactly; by a routine of
  /// the engine's own the least that it needs. Checks and headers are not counted.
  int64_t network_bytes = 0;
  int64_t wait_ns =
      0;  ///< Inside Work::wait(); small calls that end within a microsecond add nothing.
  int64_t busy_ns = 0;  ///< Inside the engine, moving and reducing.
  /// Absent over NCCL, whose device does not tell; over shared memory without a recorder; and with
  /// Progress::kThread.
  std::optional<CallTimes> times = {};
};

/// Ranks that call collectives together, over one engine. A cheap handle.
///
/// Order   every rank makes its groups in one order, and calls a group's collectives in one order.
/// Thread  safe for calls of one rank; which thread calls first must still be the program's order.
class Group {
 public:
  /// Over the shared memory of one host. `members` are ranks of the segment, in group order.
  /// Makes this rank's Heap of the segment: call it once per rank, then use subgroup().
  /// Errors  throws Error(kInvalidArgument) unless `my_world_rank` is one of `members`.
  static Group over_shm(std::shared_ptr<shm::Segment> segment, int group_id,
                        std::vector<int> members, int my_world_rank, GroupOptions options = {});

  /// One rank on a heap of its own: every collective runs the same path, with nobody to wait for.
  static Group alone(Heap heap, GroupOptions options = {});
  static Group alone(GroupOptions options = {});

  explicit Group(std::shared_ptr<GroupState> state) : state_(std::move(state)) {}

  int rank() const;
  int size() const;
  const std::string& name() const;
  /// "shm", "gloo", or the name of a c10d backend.
  std::string_view engine() const;
  /// True if tensors on `device` can be given to the group's collectives.
  bool serves(c10::Device device) const;

  /// Where tensors are made that collectives move without a copy.
  Heap& heap() const;
  /// Bounded, non-blocking work on every open call.
  /// Errors  throws as Work::wait().
  void advance() const;

  const GroupOptions& options() const;
  trace::Recorder* recorder() const;
  Stats stats() const;
  /// Collectives submitted so far; equal on all ranks between steps.
  uint64_t sequence() const;

  /// The group of `members` (ranks of this group, containing this one), on the same heap.
  /// Every rank of this group calls it, each with its own list; lists are equal or disjoint.
  /// Errors  throws Error(kInvalidArgument) for a list without this rank or with a rank twice,
  ///         Error(kUnsupported) over engines that cannot be divided (c10d).
  Group subgroup(const std::vector<int>& members, std::string_view name) const;

  /// The group of those that give the same `colour`, ordered by `key`, then by rank here. Every
  /// rank of this group calls it; one with a negative colour takes part and gets no group.
  /// Cost    one all_gather of 24 bytes.
  /// Errors  throws Error(kUnsupported) as subgroup().
  std::optional<Group> split(int64_t colour, int64_t key, std::string_view name) const;

  /// Which rank of `other` is the rank `rank` of this group; nothing if it is no member there.
  /// Errors  throws Error(kInvalidArgument) unless both came out of one group of shared memory.
  std::optional<int> translate(int rank, const Group& other) const;

  /// After kPeerLost, or any other error of this group: a new group of its members that live, in
  /// the same order, on the same heap. Every living member calls it, once per group that failed.
  /// One that dies meanwhile is left out, or makes the first call of the new group fail in turn.
  /// Other groups of the job that the loss has ended are made anew out of the new one.
  /// Errors  throws Error(kTimeout) naming who lives and does not come, Error(kInvalidArgument) for
  ///         a second call, Error(kUnsupported) over engines without shared memory.
  Group survivors(std::chrono::nanoseconds deadline = std::chrono::seconds(60)) const;

  const std::shared_ptr<GroupState>& state() const { return state_; }

 private:
  std::shared_ptr<GroupState> state_;
};

}  // namespace hanji::comm
