#include "hanji/shm/survivors.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <thread>

#include "hanji/base/clock.h"
#include "hanji/base/units.h"
#include "hanji/shm/internal/segment_layout.h"

namespace hanji::shm {
namespace {

using namespace internal;

constexpr auto kPollTime = std::chrono::microseconds(200);

constexpr uint64_t bit(int rank) { return uint64_t{1} << rank; }

/// The ranks that nobody needs to wait for: dead, gone, or what the epoch ended for.
uint64_t lost_ranks(const Segment& segment, uint32_t epoch) {
  uint64_t lost = segment.lost();
  for (int rank = 0; rank < segment.ranks(); ++rank) {
    const auto presence = static_cast<Presence>(segment.rank_state(rank).presence.load());
    if (presence == Presence::kDead || presence == Presence::kLeft) lost |= bit(rank);
  }
  const int cause = segment.epoch() == epoch ? segment.abort_rank() : -1;
  if (cause >= 0) lost |= bit(cause);
  return lost;
}

/// The meeting of a failed group, in the lines of its members.
class Meeting {
 public:
  Meeting(Segment& segment, const SurvivorOptions& options)
      : segment_(segment), options_(options) {}

  Status come() {
    auto& mine = segment_.group_rank(options_.group_id, options_.my_rank);
    uint64_t not_yet = 0;
    const auto free_id = static_cast<uint64_t>(options_.first_free_id) + 1;
    if (mine.comes.compare_exchange_strong(not_yet, free_id)) return {};
    return base::invalid_argument(
        fmt::format("group {}: its survivors have met before; call it on the group that they made",
                    options_.group_id));
  }

  /// A bit per survivor.
  Result<uint64_t> decision() {
    const auto deadline = base::Deadline::after(options_.deadline);
    auto& word = segment_.group_rank(options_.group_id, options_.members[0]).survivors;
    while (true) {
      uint64_t decided = word.load();
      if (decided != 0) return decided;
      const uint64_t lost = lost_ranks(segment_, options_.epoch);
      const std::vector<int> missing = who_is_missing(lost);
      if (missing.empty()) {
        const uint64_t living = all() & ~lost;
        return word.compare_exchange_strong(decided, living) ? living : decided;
      }
      if (deadline.passed()) return absent(missing);
      std::this_thread::sleep_for(kPollTime);
    }
  }

  /// All take the same, also if the epoch ends only now.
  uint32_t next_epoch() {
    auto& word = segment_.group_rank(options_.group_id, options_.members[0]).next_epoch;
    const uint32_t next = options_.epoch + (segment_.aborted(options_.epoch) ? 1 : 0);
    uint32_t decided = 0;
    return word.compare_exchange_strong(decided, next + 1) ? next : decided - 1;
  }

  Survivors describe(uint64_t decided, uint32_t epoch) const {
    Survivors survivors;
    survivors.epoch = epoch;
    for (const int rank : options_.members) {
      if ((decided & bit(rank)) == 0) continue;
      survivors.members.push_back(rank);
      const uint64_t free_id = segment_.group_rank(options_.group_id, rank).comes.load() - 1;
      survivors.group_id = std::max(survivors.group_id, static_cast<int>(free_id));
    }
    return survivors;
  }

 private:
  uint64_t all() const {
    uint64_t bits = 0;
    for (const int rank : options_.members) bits |= bit(rank);
    return bits;
  }

  std::vector<int> who_is_missing(uint64_t lost) const {
    std::vector<int> missing;
    for (const int rank : options_.members) {
      if ((lost & bit(rank)) != 0) continue;
      if (segment_.group_rank(options_.group_id, rank).comes.load() == 0) missing.push_back(rank);
    }
    return missing;
  }

  Status absent(const std::vector<int>& missing) const {
    return base::timeout(fmt::format(
        "group {}: rank {} waited {} for the others that live, to go on without the lost; absent: "
        "rank {} of the host; every survivor must call survivors(), and one that hangs must be "
        "ended first",
        options_.group_id, options_.my_rank,
        base::format_seconds(static_cast<double>(options_.deadline.count()) / 1e9),
        fmt::join(missing, ", ")));
  }

  Segment& segment_;
  const SurvivorOptions& options_;
};

/// This rank's ends of all channels, as if nothing had ever passed. Its peers do the same before
/// they meet in the new group.
void renew_channels(Segment& segment, int rank, uint32_t epoch) {
  RankState& state = segment.rank_state(rank);
  if (state.channels_epoch.load() >= epoch) return;
  for (int peer = 0; peer < segment.ranks(); ++peer) {
    if (peer == rank) continue;
    for (const int channel : {segment.channel_id(rank, peer), segment.channel_id(peer, rank)}) {
      GroupRank& end = segment.group_rank(channel, rank);
      for (Line& line : segment.lines(channel, rank)) line.sequence.store(0);
      end.operation.store(0);
      end.completed.store(0);
      end.members.store(0);
      end.failed.store(0);
      end.cancelled.store(0);
    }
  }
  state.channels_epoch.store(epoch);
}

}  // namespace

Result<Survivors> agree_on_survivors(Segment& segment, const SurvivorOptions& options) {
  const bool ended = segment.aborted(options.epoch);
  const Status why = segment.abort_status(options.epoch);
  if (ended && why.code() != Code::kPeerLost) return why;
  Meeting meeting(segment, options);
  HANJI_RETURN_IF_ERROR(meeting.come());
  HANJI_ASSIGN_OR_RETURN(const uint64_t decided, meeting.decision());
  if ((decided & bit(options.my_rank)) == 0) {
    return base::peer_lost(fmt::format("group {}: its survivors took rank {} of the host for dead",
                                       options.group_id, options.my_rank));
  }
  const uint32_t epoch = meeting.next_epoch();
  if (epoch != options.epoch) {
    const uint64_t lost = lost_ranks(segment, options.epoch) & ~decided;
    HANJI_RETURN_IF_ERROR(segment.begin_epoch(options.epoch, lost));
    renew_channels(segment, options.my_rank, epoch);
  }
  return meeting.describe(decided, epoch);
}

}  // namespace hanji::shm
