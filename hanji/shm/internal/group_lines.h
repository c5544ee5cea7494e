#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "hanji/shm/internal/flag_line.h"
#include "hanji/shm/internal/segment_layout.h"
#include "hanji/shm/internal/spin_wait.h"
#include "hanji/shm/segment.h"

namespace hanji::shm::internal {

/// The flag lines of one group, seen by one member: posting, polling, sleeping.
///
/// A sync with sequence s: post(s), start_asking(), then arrived(s) until true. The posting rank wakes sleepers by
/// ring(), after its first poll, so that the fence does not delay the poll.
class GroupLines {
 public:
  GroupLines(std::shared_ptr<Segment> segment, int group, std::vector<int> members, int me);

  int size() const { return static_cast<int>(ranks_.size()); }
  int me() const { return me_; }
  int group() const { return group_; }
  /// The lines of the group in which another rank of the segment waits, seen by that rank.
  GroupLines of(int group, int world_rank) const;
  /// The rank in the segment of a member.
  int world_rank(int member) const { return members_[member]; }
  Segment& segment() const { return *segment_; }

  void post(uint64_t sequence, const Words& words) {
    Line& mine = line(me_, sequence);
    for (size_t i = 0; i < words.size(); ++i) {
      mine.words[i].store(words[i], std::memory_order_relaxed);
    }
    mine.sequence.store(sequence, std::memory_order_release);
  }
  /// Before the first arrived() of a sync.
  void start_asking() { cursor_ = 0; }
  /// Whether every member has posted `sequence`; asks on from where the last call stopped.
  bool arrived(uint64_t sequence) {
    for (; cursor_ != size(); ++cursor_) {
      if (line(cursor_, sequence).sequence.load(std::memory_order_acquire) < sequence) {
        return false;
      }
    }
    claim_line(&line(me_, sequence + 1));  // all have read what stands there
    return true;
  }
  bool has_posted(int member, uint64_t sequence) const {
    return line(member, sequence).sequence.load(std::memory_order_acquire) >= sequence;
  }
  /// Syncs of each member that can be read at one time; a power of two.
  uint64_t num_lines() const { return lines_[0].size(); }
  /// What a member posted with `sequence`.
  void read(int member, uint64_t sequence, Words& words) const {
    const Line& from = line(member, sequence);
    for (size_t i = 0; i < words.size(); ++i) {
      words[i] = from.words[i].load(std::memory_order_relaxed);
    }
  }
  /// How long this rank moved bytes before it posts `sequence`, and a member that has posted it.
  void set_moved(uint64_t sequence, int64_t ns) {
    const auto units = std::min<int64_t>(ns / kMovedUnitNs, UINT32_MAX);
    ranks_[me_]->moved[sequence % 2].store(static_cast<uint32_t>(units), std::memory_order_relaxed);
  }
  int64_t moved(int member, uint64_t sequence) const {
    return kMovedUnitNs * ranks_[member]->moved[sequence % 2].load(std::memory_order_relaxed);
  }
  /// While a sync has not arrived: the member that is asked next.
  int awaited() const { return std::min(cursor_, size() - 1); }
  /// The last sequence that a member posted; 0: none.
  uint64_t last_sequence(int member) const;

  /// Wakes the members that sleep. Cost: one fence if none does.
  void ring();
  /// Sleeps until somebody rings, unless `sequence` has arrived or never will; at most `limit`.
  void sleep(uint64_t sequence, std::chrono::nanoseconds limit);

  /// The number of the operation that this member has begun, and that another began last.
  void set_operation(uint64_t operation) {
    ranks_[me_]->operation.store(operation, std::memory_order_relaxed);
    const uint64_t number = operation & ((uint64_t{1} << 48) - 1);
    last_call_->store(static_cast<uint64_t>(group_ + 1) << 48 | number, std::memory_order_relaxed);
  }
  uint64_t last_operation(int member) const {
    return ranks_[member]->operation.load(std::memory_order_relaxed);
  }

  void set_completed(uint64_t operation) {
    ranks_[me_]->completed.store(operation, std::memory_order_relaxed);
  }
  uint64_t last_completed(int member) const {
    return ranks_[member]->completed.load(std::memory_order_relaxed);
  }

  /// Ends the group at `operation` on every member, unless somebody has. From any thread.
  void cancel(uint64_t operation);
  /// Who has cancelled, and which operation; member -1: nobody.
  struct Cancelled {
    int member = -1;
    uint64_t operation = 0;
  };
  Cancelled cancelled() const {
    const uint64_t word = ranks_[me_]->cancelled.load(std::memory_order_relaxed);
    return {static_cast<int>(word >> 48) - 1, word & 0xffffffffffff};
  }
  /// The members of the group, for readers of the segment outside of the job.
  void announce_members();

  void set_failed(Code code);
  Code failed(int member) const;

 private:
  static constexpr int64_t kMovedUnitNs = 16;

  bool is_hopeless(uint64_t sequence) const;
  Line& line(int member, uint64_t sequence) const {
    return lines_[member][sequence & (num_lines() - 1)];
  }

  std::shared_ptr<Segment> segment_;
  int group_;
  std::vector<int> members_;
  int me_;
  std::vector<GroupRank*> ranks_;
  std::vector<std::span<Line>> lines_;  ///< By member.
  Waiters& waiters_;
  Atomic<uint64_t>* last_call_ = nullptr;  ///< Last call of this member in any group.
  int cursor_ = 0;
};

}  // namespace hanji::shm::internal
