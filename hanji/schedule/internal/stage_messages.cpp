#include "hanji/schedule/internal/stage_messages.h"

#include <map>
#include <set>

namespace hanji::schedule::internal {
namespace {

bool is_forward(const Action& compute) { return compute.kind == ActionKind::kForward; }

/// The stage that takes what a computation makes (step 1), or gives what it needs (step -1).
std::optional<int> neighbour(const PipelineSchedule& schedule, const Action& compute, int step) {
  if (!is_compute(compute.kind) || compute.kind == ActionKind::kBackwardWeight) return std::nullopt;
  const int stage = compute.stage + (is_forward(compute) ? step : -step);
  if (stage < 0 || stage >= schedule.num_stages()) return std::nullopt;
  return stage;
}

bool is_local(const PipelineSchedule& schedule, int a, int b) {
  return schedule.rank_of_stage[a] == schedule.rank_of_stage[b];
}

using Pair = std::pair<int, int>;  // sender, receiver

/// What each rank sends to each other, in order.
std::map<Pair, ActionList> sends_of(const PipelineSchedule& schedule) {
  std::map<Pair, ActionList> sends;
  for (int rank = 0; rank < schedule.shape.num_ranks; ++rank) {
    for (const Action& compute : schedule.ranks[rank]) {
      const auto send = send_after(schedule, compute);
      if (send) sends[{rank, schedule.rank_of_stage[send->peer]}].push_back(*send);
    }
  }
  return sends;
}

/// The messages that one rank has received, in the order of their senders.
class Inbox {
 public:
  Inbox(const PipelineSchedule& schedule, const std::map<Pair, ActionList>& sends, int rank)
      : schedule_(schedule), sends_(sends), rank_(rank) {}

  /// Appends receives until `needed` is among them.
  void receive(const Action& needed, ActionList& actions) {
    const Pair pair{schedule_.rank_of_stage[needed.peer], rank_};
    while (!received_.contains({pass_of(needed), needed.peer})) {
      const Action next = other_end(sends_.at(pair)[next_[pair]++]);
      received_.insert({pass_of(next), next.peer});
      actions.push_back(next);
    }
  }

 private:
  const PipelineSchedule& schedule_;
  const std::map<Pair, ActionList>& sends_;
  int rank_;
  std::map<Pair, size_t> next_;
  std::set<std::pair<Pass, int>> received_;
};

}  // namespace

std::optional<Action> send_after(const PipelineSchedule& schedule, const Action& compute) {
  const auto peer = neighbour(schedule, compute, 1);
  if (!peer || is_local(schedule, compute.stage, *peer)) return std::nullopt;
  return Action{ActionKind::kSend, compute.stage, compute.micro_batch, *peer};
}

std::optional<Action> source_of(const PipelineSchedule& schedule, const Action& compute) {
  const auto stage = neighbour(schedule, compute, -1);
  if (!stage) return std::nullopt;
  if (!is_local(schedule, compute.stage, *stage)) {
    return Action{ActionKind::kReceive, compute.stage, compute.micro_batch, *stage};
  }
  const ActionKind kind = is_forward(compute) ? ActionKind::kForward : ActionKind::kBackwardInput;
  return Action{kind, *stage, compute.micro_batch};
}

Action other_end(const Action& message) {
  const bool is_send = message.kind == ActionKind::kSend;
  return {is_send ? ActionKind::kReceive : ActionKind::kSend, message.peer, message.micro_batch,
          message.stage};
}

void add_messages(PipelineSchedule& schedule) {
  const auto sends = sends_of(schedule);
  for (int rank = 0; rank < schedule.shape.num_ranks; ++rank) {
    const ActionList computes = std::exchange(schedule.ranks[rank], {});
    std::map<int, size_t> last;  // of each stage, what completes its gradients
    for (size_t i = 0; i < computes.size(); ++i) {
      if (adds_gradients(computes[i].kind)) last[computes[i].stage] = i;
    }
    Inbox inbox(schedule, sends, rank);
    ActionList& actions = schedule.ranks[rank];
    for (size_t i = 0; i < computes.size(); ++i) {
      const Action& compute = computes[i];
      const auto source = source_of(schedule, compute);
      if (source && source->kind == ActionKind::kReceive) inbox.receive(*source, actions);
      actions.push_back(compute);
      if (const auto send = send_after(schedule, compute)) actions.push_back(*send);
      if (last[compute.stage] == i && adds_gradients(compute.kind)) {
        actions.push_back({ActionKind::kReduce, compute.stage});
      }
    }
  }
}

}  // namespace hanji::schedule::internal
