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
  void add_moved(int64_t ns) { moved_ns_ += ns; }
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
  static constexpr int64_t kWorthAnEvent = 10'000;  // ns; shorter ones would fill the ring

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
    since_ns_ = 0;
    if (waited - transfer < kWorthAnEvent) return;
    trace::Event event;
    event.start_ns = now - (waited - transfer);
    event.end_ns = now;
    event.name = recorder_->intern("waiting for rank " + std::to_string(lines_.world_rank(late_)));
    event.category = trace::Category::kSkew;
    event.group = lines_.group();
    recorder_->add(event);
  }

  GroupLines& lines_;
  Stats& stats_;
  trace::Recorder* recorder_;
  bool waiting_ = false;
  int64_t since_ns_ = 0;  // of the stretch without progress; 0: there is none
  int64_t moved_ns_ = 0;  // since the last post
  int late_ = 0;          // the member that had not come when this rank looked last
};

}  // namespace hanji::shm::internal
