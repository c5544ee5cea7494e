#include "hanji/schedule/pipeline_timeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

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
      : schedule_(schedule), times_(times), spans_(schedule.ranks.size()) {}

  Status run() {
    for (bool goes_on = true; goes_on;) {
      goes_on = false;
      for (int rank = 0; rank < static_cast<int>(spans_.size()); ++rank) {
        while (step(rank)) goes_on = true;
      }
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

  bool step(int rank) {
    auto& spans = spans_[rank];
    if (spans.size() == schedule_.ranks[rank].size()) return false;
    const Action& action = schedule_.ranks[rank][spans.size()];
    const double now = spans.empty() ? 0 : spans.back().end;
    double end = now;
    if (action.kind == ActionKind::kSend) {
      Channel& channel = channels_[{rank, schedule_.rank_of_stage[action.peer]}];
      const auto sent = static_cast<int64_t>(channel.arrivals.size());
      const int64_t before = sent - times_.buffered_messages;  // whose place it takes
      if (before >= static_cast<int64_t>(channel.receipts.size())) return false;
      if (before >= 0) end = std::max(now, channel.receipts[before]);
      channel.arrivals.push_back(end + message_seconds(action));
    } else if (action.kind == ActionKind::kReceive) {
      Channel& channel = channels_[{schedule_.rank_of_stage[action.peer], rank}];
      if (channel.receipts.size() == channel.arrivals.size()) return false;
      end = std::max(now, channel.arrivals[channel.receipts.size()]);
      channel.receipts.push_back(end);
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
  PipelineTimes times;
  times.buffered_messages = 0;
  while (!simulate(schedule, times).ok()) ++times.buffered_messages;
  return times.buffered_messages;
}

}  // namespace hanji::schedule
