#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "hanji/base/fd.h"
#include "hanji/base/shared_memory.h"
#include "hanji/base/status.h"

namespace hanji::shm {

class CallSites;
namespace internal {
struct AbortWord;
struct Waiters;
struct EpochWord;
struct GroupRank;
struct Line;
struct OtherHosts;
struct Offsets;
struct RankState;
struct SiteTable;
enum class Presence : uint32_t;
}  // namespace internal

struct SegmentOptions {
  int ranks = 1;                                  ///< 1 to 64.
  size_t heap_bytes_per_rank = size_t{64} << 30;  ///< Addresses; memory comes on demand.
  uint32_t trace_events = 1u << 16;               ///< Per rank, 64 bytes each.
  std::string build_id = {};                      ///< At most 95 characters.
  std::string plan_hash = {};                     ///< At most 95 characters.
};

/// The shared memory of a host's ranks: flags, liveness, call sites, trace rings, staging, heap.
/// internal/segment_layout.h draws it. Threads of one process may share one object.
class Segment {
 public:
  static Result<std::shared_ptr<Segment>> create(const SegmentOptions& options);
  /// Errors  kCorrupt if the bytes are no segment of this version; kMismatch if build or plan
  ///         differ, with both values.
  static Result<std::shared_ptr<Segment>> attach(base::Fd fd, std::string_view build_id,
                                                 std::string_view plan_hash);
  ~Segment();

  int ranks() const { return ranks_; }
  int fd() const { return memory_.fd(); }
  std::byte* data() const { return memory_.data(); }
  size_t size() const { return memory_.size(); }
  /// Where trace::Recorder of `rank` lies: format it there, and it survives the rank.
  std::span<std::byte> trace_memory(int rank) const;
  /// Where the trace::Recorder of the rank's last kFlightCalls calls lies, which only the engine
  /// writes; join() formats it.
  std::span<std::byte> call_memory(int rank) const;
  CallSites& call_sites() const { return *call_sites_; }

  /// `rank` is here, as this process and with this thread's processors.
  void join(int rank);
  /// `rank` ends as it should: its death from now on is no fault. A rank that still waits for it is
  /// told that it left.
  void leave(int rank);
  /// Whether `rank` joined and did not leave, be it alive or dead.
  bool is_expected(int rank) const;
  /// Process id of `rank`; 0 before it joined.
  int pid(int rank) const;
  /// For those who look from outside: the other hosts of the job, a line "FIRST_RANK RANKS NAME" of
  /// each, the name without spaces. Only the first call has an effect.
  void describe_other_hosts(std::string_view lines);
  /// Processors that ranks have joined with, as one set.
  int num_processors() const;

  /// Ends the epoch: every wait in every group of it returns `code` with `text`, now or at its next
  /// call. Only the first call has an effect, and none about a rank that is lost(); true if it was
  /// this one.
  bool abort(int rank, Code code, std::string_view text);
  bool aborted() const { return aborted(epoch()); }
  bool aborted(uint32_t epoch) const;
  /// The verdict of abort(); ok before.
  Status abort_status() const { return abort_status(epoch()); }
  Status abort_status(uint32_t epoch) const;
  /// Whom the verdict is about; -1 before.
  int abort_rank() const;

  /// A job goes on after the loss of ranks in a new epoch: what belongs to an older one has failed.
  uint32_t epoch() const;
  /// The ranks that earlier epochs ended without: a bit each.
  uint64_t lost() const;
  /// Begins the epoch behind `ended`, unless somebody has. `lost` are added to lost().
  Status begin_epoch(uint32_t ended, uint64_t lost);

  /// Memory for [offset, offset + bytes) of this segment, before it is touched.
  Status grow(size_t offset, size_t bytes) const { return memory_.grow(offset, bytes); }
  Status release(size_t offset, size_t bytes) const { return memory_.release(offset, bytes); }
  /// The segment at other addresses, where this process can only read; mapped when first asked for.
  /// Errors  as SharedMemory::map_read_only().
  Result<const std::byte*> read_only() const;
  size_t heap_offset(int rank) const;
  size_t heap_bytes_per_rank() const { return heap_bytes_; }

  internal::RankState& rank_state(int rank) const;
  internal::SiteTable& site_table(int rank) const;
  internal::Waiters& waiters(int group) const;
  internal::AbortWord& abort_word(uint32_t epoch) const;
  internal::GroupRank& group_rank(int group, int rank) const;
  /// Where a rank posts its syncs in a group: a power of two, by sequence.
  std::span<internal::Line> lines(int group, int rank) const;
  /// Offset of a rank's staging memory in a group.
  size_t staging_offset(int group, int rank) const;
  /// The group that carries messages from one rank to another; its members are these two.
  int channel_id(int sender, int receiver) const;

 private:
  explicit Segment(base::SharedMemory memory);
  static Result<std::shared_ptr<Segment>> finish(base::SharedMemory memory);
  internal::EpochWord& epoch_word() const;
  const internal::Offsets& offsets() const { return *offsets_; }
  /// Of a group or channel, and one of its ranks.
  struct Place {
    size_t waiters;  ///< Offset; the GroupRanks follow it.
    size_t member;   ///< Which of them is the rank's.
    size_t staging;  ///< Offset of the first member's.
  };
  Place place_of(int group, int rank) const;

  base::SharedMemory memory_;
  int ranks_ = 0;
  size_t trace_bytes_ = 0;
  size_t heap_bytes_ = 0;
  std::unique_ptr<const internal::Offsets> offsets_;
  std::unique_ptr<CallSites> call_sites_;
  mutable std::mutex read_only_mutex_;
  mutable std::optional<base::ReadOnlyMapping> read_only_;
};

}  // namespace hanji::shm
