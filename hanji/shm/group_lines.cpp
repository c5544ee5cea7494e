#include "hanji/shm/internal/group_lines.h"

#include <algorithm>

#include "hanji/shm/internal/futex.h"

namespace hanji::shm::internal {
GroupLines::GroupLines(std::shared_ptr<Segment> segment, int group, std::vector<int> members,
                       int me)
    : segment_(std::move(segment)),
      group_(group),
      members_(std::move(members)),
      me_(me),
      waiters_(segment_->waiters(group)) {
  for (const int rank : members_) {
    ranks_.push_back(&segment_->group_rank(group, rank));
    lines_.push_back(segment_->lines(group, rank));
  }
  if (me_ < size()) last_call_ = &segment_->rank_state(members_[me_]).last_call;
}

GroupLines GroupLines::of(int group, int world_rank) const {
  const int channel = group - kMaxGroups;
  const uint64_t bits =
      channel < 0 ? segment_->group_rank(group, world_rank).members.load(std::memory_order_acquire)
                  : uint64_t{1} << (channel / segment_->ranks()) |
                        uint64_t{1} << (channel % segment_->ranks());
  std::vector<int> members;
  for (int rank = 0; rank < segment_->ranks(); ++rank) {
    if ((bits >> rank & 1) != 0) members.push_back(rank);
  }
  const auto me = std::ranges::find(members, world_rank) - members.begin();
  return GroupLines(segment_, group, std::move(members), static_cast<int>(me));
}

uint64_t GroupLines::last_sequence(int member) const {
  uint64_t last = 0;
  for (const Line& line : lines_[member]) {
    last = std::max(last, line.sequence.load(std::memory_order_acquire));
  }
  return last;
}

void GroupLines::ring() {
  full_fence();
  if (waiters_.sleepers.load(std::memory_order_relaxed) == 0) return;
  waiters_.rings.fetch_add(1, std::memory_order_release);
  futex_wake_all(waiters_.rings);
}

void GroupLines::sleep(uint64_t sequence, std::chrono::nanoseconds limit) {
  const uint32_t rings = waiters_.rings.load(std::memory_order_acquire);
  waiters_.sleepers.fetch_add(1, std::memory_order_relaxed);
  full_fence();
  if (!arrived(sequence) && !is_hopeless(sequence)) futex_wait(waiters_.rings, rings, limit);
  waiters_.sleepers.fetch_sub(1, std::memory_order_relaxed);
}

// A rank that ends the job, cancels or gives up wakes sleepers too, and may have done so before this rank was counted.
bool GroupLines::is_hopeless(uint64_t sequence) const {
  if (segment_->aborted() || cancelled().member >= 0) return true;
  for (int member = 0; member < size(); ++member) {
    if (failed(member) != Code::kOk && !has_posted(member, sequence)) return true;
  }
  return false;
}

void GroupLines::announce_members() {
  uint64_t bits = 0;
  for (const int rank : members_) bits |= uint64_t{1} << rank;
  ranks_[me_]->members.store(bits, std::memory_order_release);
}

void GroupLines::cancel(uint64_t operation) {
  const uint64_t word = static_cast<uint64_t>(me_ + 1) << 48 | (operation & 0xffffffffffff);
  for (GroupRank* rank : ranks_) {
    uint64_t nobody = 0;
    rank->cancelled.compare_exchange_strong(nobody, word);
  }
  ring();
}

void GroupLines::set_failed(Code code) {
  ranks_[me_]->failed.store(static_cast<uint32_t>(code), std::memory_order_release);
  ring();
}

Code GroupLines::failed(int member) const {
  return static_cast<Code>(ranks_[member]->failed.load(std::memory_order_acquire));
}

}  // namespace hanji::shm::internal
