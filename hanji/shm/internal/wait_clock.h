#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>

#include "hanji/base/clock.h"
#include "hanji/shm/engine.h"
#include "hanji/shm/internal/group_lines.h"
#include "hanji/trace/recorder.h"

namespace hanji::shm::internal {

/// Splits the time for which wait() makes no progress, sync by sync.
///
/// With every post a rank publishes how long it moved bytes since its last one. Where a sync is
/// waited for, the time that the busiest peer moved longer than this rank is transfer; the rest is
/// skew: a peer had not come yet, or computed.
/// Cost    nothing unless calls are traced; then two clock reads per sync that is waited for.
class WaitClock {
 public:
  WaitClock(GroupLines& lines, Stats& stats, trace::Recorder* recorder)
      : lines_(lines), stats_(stats), recorder_(recorder) {}

  bool on() const { return recorder_ != nullptr; }
  /// Whether the caller waits, or works on calls on the way.
  void set_waiting(bool waiting) {
    waiting_ = waiting && on();
    since_ns_ = 0;
  }
  /// The call that moves and waits from now on.
  void set_call(trace::NameId name) { call_ = name; }
  /// This rank has moved bytes.
  void moved(int64_t start_ns, int64_t end_ns) {
    moved_ns_ += end_ns - start_ns;
    extend(start_ns, end_ns);
  }
  /// Records the transfer that is known so far.
  void flush() {
    if (transfer_end_ns_ - transfer_start_ns_ >= kWorthATransfer) {
      add(trace::Category::kTransfer, call_, transfer_start_ns_, transfer_end_ns_);
    }
    transfer_start_ns_ = transfer_end_ns_ = 0;
  }
  /// This rank worked for other groups while it waited here.
  void leave_out(int64_t ns) {
    if (since_ns_ != 0) since_ns_ += ns;
  }
  /// Just before the sync is posted.
  void post(uint64_t sequence) {
    if (!on()) return;
    lines_.set_moved(sequence, moved_ns_);
    moved_ns_ = 0;
  }
  /// Some rank has not posted the sync that is waited for.
  void missed() {
    if (waiting_) [[unlikely]]
      note_miss();
  }
  /// All have.
  void passed(uint64_t sequence) {
    if (since_ns_ != 0) [[unlikely]]
      account(sequence);
  }

 private:
  static constexpr int64_t kWorthAWait = 2'000;  // ns; shorter ones would fill the ring
  static constexpr int64_t kWorthATransfer = 500;
  static constexpr int64_t kBridged = 1'000;  // between parts of one transfer

  void note_miss() {
    late_ = lines_.awaited();
    if (since_ns_ == 0) since_ns_ = base::now_ns();
  }

  void account(uint64_t sequence) {
    const int64_t now = base::now_ns();
    const int64_t waited = std::max<int64_t>(0, now - since_ns_);
    int64_t most = 0;
    for (int member = 0; member < lines_.size(); ++member) {
      most = std::max(most, lines_.moved(member, sequence));
    }
    const int64_t longer = most - lines_.moved(lines_.me(), sequence);
    const int64_t transfer = std::min(longer, waited);
    stats_.peers_ns += transfer;
    stats_.skew_ns += waited - transfer;
    const int64_t late_ns = now - (waited - transfer);
    extend(since_ns_, since_ns_ + transfer);
    since_ns_ = 0;
    if (waited - transfer < kWorthAWait) return;
    flush();
    add(trace::Category::kSkew,
        recorder_->intern("waiting for rank " + std::to_string(lines_.world_rank(late_))), late_ns,
        now);
  }

  void extend(int64_t start_ns, int64_t end_ns) {
    if (!on() || end_ns <= start_ns) return;
    if (start_ns - transfer_end_ns_ > kBridged) {
      flush();
      transfer_start_ns_ = start_ns;
    }
    transfer_end_ns_ = std::max(transfer_end_ns_, end_ns);
  }

  void add(trace::Category category, trace::NameId name, int64_t start_ns, int64_t end_ns) {
    trace::Event event;
    event.start_ns = start_ns;
    event.end_ns = end_ns;
    event.name = name;
    event.category = category;
    event.group = lines_.group();
    recorder_->add(event);
  }

  GroupLines& lines_;
  Stats& stats_;
  trace::Recorder* recorder_;
  bool waiting_ = false;
  int64_t since_ns_ = 0;  // of the stretch without progress; 0: there is none
  int64_t moved_ns_ = 0;  // since the last post
  trace::NameId call_ = 0;
  int64_t transfer_start_ns_ = 0;  // not recorded yet
  int64_t transfer_end_ns_ = 0;
  int late_ = 0;  // the member that had not come when this rank looked last
};

}  // namespace hanji::shm::internal
