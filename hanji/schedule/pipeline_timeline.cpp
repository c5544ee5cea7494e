#include "hanji/schedule/pipeline_timeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

namespace hanji::schedule {
namespace {

/// Messages from one rank to another, first in, first out.
struct Channel {
  std::vector<double> arrivals;
  std::vector<double> receipts;  // when its place in the buffer was free again
};

double seconds_of(const Action& action, const StageSeconds& stage) {
  switch (action.kind) {
    case ActionKind::kForward: return stage.forward;
    case ActionKind::kBackward: return stage.backward_input + stage.backward_weight;
    case ActionKind::kBackwardInput: return stage.backward_input;
    case ActionKind::kBackwardWeight: return stage.backward_weight;
    default: return 0;
  }
}

class PipelineWalk {
 public:
  PipelineWalk(const PipelineSchedule& schedule, const PipelineTimes& times)
      : schedule_(schedule),
        times_(times),
        spans_(schedule.ranks.size()),
        is_awake_(schedule.ranks.size()) {}

  Status run() {
    for (size_t rank = spans_.size(); rank > 0; --rank) wake(static_cast<int>(rank - 1));
    while (!awake_.empty()) {
      const int rank = awake_.back();
      awake_.pop_back();
      is_awake_[rank] = false;
      while (step(rank)) continue;
    }
    std::string stuck;
    for (size_t rank = 0; rank < spans_.size(); ++rank) {
      const ActionList& actions = schedule_.ranks[rank];
      if (spans_[rank].size() == actions.size()) continue;
      stuck += fmt::format("{}rank {} at action {}, {}", stuck.empty() ? "" : "; ", rank,
                           spans_[rank].size(), to_string(actions[spans_[rank].size()]));
    }
    if (stuck.empty()) return {};
    return base::invalid_argument("deadlock: " + stuck);
  }

  PipelineTimeline timeline() && {
    PipelineTimeline timeline;
    timeline.ranks = std::move(spans_);
    for (size_t rank = 0; rank < timeline.ranks.size(); ++rank) add_rank(timeline, rank);
    return timeline;
  }

 private:
  double message_seconds(const Action& action) const {
    const size_t before = std::min(action.stage, action.peer);
    return times_.latency_seconds + (times_.messages.empty() ? 0 : times_.messages[before]);
  }

  /// The rank may go on.
  void wake(int rank) {
    if (is_awake_[rank]) return;
    is_awake_[rank] = true;
    awake_.push_back(rank);
  }

  bool step(int rank) {
    auto& spans = spans_[rank];
    if (spans.size() == schedule_.ranks[rank].size()) return false;
    const Action& action = schedule_.ranks[rank][spans.size()];
    const double now = spans.empty() ? 0 : spans.back().end;
    double end = now;
    if (action.kind == ActionKind::kSend) {
      const int receiver = schedule_.rank_of_stage[action.peer];
      Channel& channel = channels_[{rank, receiver}];
      const auto sent = static_cast<int64_t>(channel.arrivals.size());
      const int64_t before = sent - times_.buffered_messages;  // whose place it takes
      if (before >= static_cast<int64_t>(channel.receipts.size())) return false;
      if (before >= 0) end = std::max(now, channel.receipts[before]);
      channel.arrivals.push_back(end + message_seconds(action));
      wake(receiver);
    } else if (action.kind == ActionKind::kReceive) {
      const int sender = schedule_.rank_of_stage[action.peer];
      Channel& channel = channels_[{sender, rank}];
      if (channel.receipts.size() == channel.arrivals.size()) return false;
      end = std::max(now, channel.arrivals[channel.receipts.size()]);
      channel.receipts.push_back(end);
      wake(sender);
    } else {
      end +=
          seconds_of(action, times_.stages.empty() ? StageSeconds{} : times_.stages[action.stage]);
    }
    spans.push_back({now, end});
    return true;
  }

  void add_rank(PipelineTimeline& timeline, size_t rank) const {
    const auto& spans = timeline.ranks[rank];
    double busy = 0;
    const ActionSpan* first = nullptr;
    const ActionSpan* last = nullptr;
    for (size_t i = 0; i < spans.size(); ++i) {
      if (!is_compute(schedule_.ranks[rank][i].kind)) continue;
      busy += spans[i].end - spans[i].begin;
      if (!first) first = &spans[i];
      last = &spans[i];
    }
    if (!first) return;
    timeline.seconds = std::max(timeline.seconds, spans.back().end);
    timeline.busiest_seconds = std::max(timeline.busiest_seconds, busy);
    timeline.idle_inside_seconds =
        std::max(timeline.idle_inside_seconds, last->end - first->begin - busy);
  }

  const PipelineSchedule& schedule_;
  const PipelineTimes& times_;
  std::vector<std::vector<ActionSpan>> spans_;
  std::vector<int> awake_;  // ranks that may go on
  std::vector<bool> is_awake_;
  std::map<std::pair<int, int>, Channel> channels_;  // sender, receiver
};

}  // namespace

Result<PipelineTimeline> simulate(const PipelineSchedule& schedule, const PipelineTimes& times) {
  const size_t stages = schedule.rank_of_stage.size();
  if (!times.stages.empty() && times.stages.size() != stages) {
    return base::invalid_argument(
        fmt::format("times of {} stages for a schedule of {}; give one per stage",
                    times.stages.size(), stages));
  }
  PipelineWalk walk(schedule, times);
  HANJI_RETURN_IF_ERROR(walk.run());
  return std::move(walk).timeline();
}

int64_t least_buffered_messages(const PipelineSchedule& schedule) {
  base::throw_if_error(simulate(schedule, {}).status());
  const auto ends_with = [&](int64_t messages) {
    PipelineTimes times;
    times.buffered_messages = messages;
    return simulate(schedule, times).ok();
  };
  if (ends_with(0)) return 0;
  int64_t too_few = 0, enough = 1;
  while (!ends_with(enough)) too_few = std::exchange(enough, 2 * enough);
  while (enough - too_few > 1) {
    const int64_t middle = (too_few + enough) / 2;
    (ends_with(middle) ? enough : too_few) = middle;
  }
  return enough;
}

}  // namespace hanji::schedule
