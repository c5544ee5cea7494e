#include "hanji/schedule/pipeline_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "hanji/schedule/internal/stage_messages.h"
#include "hanji/schedule/pipeline_timeline.h"

namespace hanji::schedule {
namespace {

std::string place_of(int rank, size_t index, const Action& action) {
  return fmt::format("rank {}, action {}, {}", rank, index, to_string(action));
}

Status wrong(int rank, size_t index, const Action& action, std::string_view why) {
  return base::invalid_argument(fmt::format("{}: {}", place_of(rank, index, action), why));
}

bool has_neighbour(const PipelineSchedule& schedule, const Action& message) {
  return message.peer >= 0 && message.peer < schedule.num_stages() &&
         std::abs(message.peer - message.stage) == 1;
}

/// Messages go to neighbours, none comes twice, and each computation has what it needs.
Status check_sources(const PipelineSchedule& schedule, int rank) {
  std::set<std::pair<Pass, int>> received;   // and the stage that sent it
  std::set<std::pair<Pass, bool>> computed;  // and whether forward
  const ActionList& actions = schedule.ranks[rank];
  for (size_t i = 0; i < actions.size(); ++i) {
    const Action& action = actions[i];
    const bool is_receive = action.kind == ActionKind::kReceive;
    if ((is_receive || action.kind == ActionKind::kSend) && !has_neighbour(schedule, action)) {
      return wrong(rank, i, action, "the stage at the other end is no neighbour");
    }
    if (is_receive && !received.insert({pass_of(action), action.peer}).second) {
      return wrong(rank, i, action, "it has been received before");
    }
    const auto source = internal::source_of(schedule, action);
    const bool is_there =
        !source ||
        (source->kind == ActionKind::kReceive
             ? received.contains({pass_of(*source), source->peer})
             : computed.contains({pass_of(*source), source->kind == ActionKind::kForward}));
    if (!is_there) {
      return wrong(rank, i, action, fmt::format("the {} is not before it", to_string(*source)));
    }
    if (is_compute(action.kind) && action.kind != ActionKind::kBackwardWeight) {
      computed.insert({pass_of(action), action.kind == ActionKind::kForward});
    }
  }
  return {};
}

struct PlacedMessage {
  size_t index;
  Action action;
};
struct PairMessages {
  std::vector<PlacedMessage> sends, receives;
};

/// All messages by sender and receiver.
std::map<std::pair<int, int>, PairMessages> pairs_of(const PipelineSchedule& schedule) {
  std::map<std::pair<int, int>, PairMessages> pairs;
  for (int rank = 0; rank < schedule.shape.num_ranks; ++rank) {
    for (size_t i = 0; i < schedule.ranks[rank].size(); ++i) {
      const Action& action = schedule.ranks[rank][i];
      if (action.kind == ActionKind::kSend) {
        pairs[{rank, schedule.rank_of_stage[action.peer]}].sends.push_back({i, action});
      } else if (action.kind == ActionKind::kReceive) {
        pairs[{schedule.rank_of_stage[action.peer], rank}].receives.push_back({i, action});
      }
    }
  }
  return pairs;
}

Status check_pairs(const PipelineSchedule& schedule) {
  for (const auto& [pair, messages] : pairs_of(schedule)) {
    const auto& [sends, receives] = messages;
    const size_t both = std::min(sends.size(), receives.size());
    for (size_t i = 0; i < both; ++i) {
      if (internal::other_end(sends[i].action) == receives[i].action) continue;
      return wrong(
          pair.second, receives[i].index, receives[i].action,
          fmt::format("it would meet {}", place_of(pair.first, sends[i].index, sends[i].action)));
    }
    if (sends.size() > both) {
      return wrong(pair.first, sends[both].index, sends[both].action,
                   fmt::format("rank {} does not receive it", pair.second));
    }
    if (receives.size() > both) {
      return wrong(pair.second, receives[both].index, receives[both].action,
                   fmt::format("rank {} does not send it", pair.first));
    }
  }
  return {};
}

/// Each receive is followed by receives alone until a computation that needs it, or a later one of
/// the same sender: no other action waits for it.
Status check_receives(const PipelineSchedule& schedule, int rank) {
  const ActionList& actions = schedule.ranks[rank];
  for (size_t i = 0; i < actions.size(); ++i) {
    if (actions[i].kind != ActionKind::kReceive) continue;
    size_t next = i;
    while (next < actions.size() && actions[next].kind == ActionKind::kReceive) ++next;
    if (next == actions.size()) return wrong(rank, i, actions[i], "nothing needs it");
    const auto needed = internal::source_of(schedule, actions[next]);
    const auto end = actions.begin() + static_cast<std::ptrdiff_t>(next);
    const bool is_in_time =
        needed && needed->kind == ActionKind::kReceive &&
        schedule.rank_of_stage[needed->peer] == schedule.rank_of_stage[actions[i].peer] &&
        std::find(actions.begin() + static_cast<std::ptrdiff_t>(i), end, *needed) != end;
    if (is_in_time) continue;
    return wrong(rank, i, actions[i],
                 fmt::format("it delays action {}, {}, which does not need it", next,
                             to_string(actions[next])));
  }
  return {};
}

Status check_messages(const PipelineSchedule& schedule) {
  for (int rank = 0; rank < schedule.shape.num_ranks; ++rank) {
    HANJI_RETURN_IF_ERROR(check_sources(schedule, rank));
  }
  HANJI_RETURN_IF_ERROR(check_pairs(schedule));
  for (int rank = 0; rank < schedule.shape.num_ranks; ++rank) {
    HANJI_RETURN_IF_ERROR(check_receives(schedule, rank));
  }
  return {};
}

Status check_reduces(const PipelineSchedule& schedule) {
  for (int stage = 0; stage < schedule.num_stages(); ++stage) {
    const Action reduce{ActionKind::kReduce, stage};
    const int rank = schedule.rank_of_stage[stage];
    if (std::ranges::count(schedule.ranks[rank], reduce) == 1) continue;
    return base::invalid_argument(fmt::format("rank {} lacks {}", rank, to_string(reduce)));
  }
  return {};
}

Status check_formulas(const PipelineSchedule& schedule) {
  for (int rank = 0; rank < schedule.shape.num_ranks; ++rank) {
    const auto expected = in_flight_formula(schedule.kind, schedule.shape, rank);
    const int64_t counted = max_in_flight(schedule.ranks[rank]);
    if (!expected || *expected == counted) continue;
    return base::invalid_argument(fmt::format("rank {} keeps {} activations at once; a {} keeps {}",
                                              rank, counted, name_of(schedule.kind), *expected));
  }
  const auto expected = bubble_formula(schedule.kind, schedule.shape);
  HANJI_ASSIGN_OR_RETURN(const PipelineTimeline timeline, simulate(schedule, {}));
  if (!expected || std::abs(timeline.bubble() - *expected) < 1e-9) return {};
  return base::invalid_argument(fmt::format("the bubble over ideal is {}; that of a {} is {}",
                                            timeline.bubble(), name_of(schedule.kind), *expected));
}

}  // namespace

std::optional<double> bubble_formula(PipelineKind kind, const PipelineShape& shape) {
  const double others = shape.num_ranks - 1;
  const auto m = static_cast<double>(shape.num_micro_batches);
  const bool fills = shape.num_micro_batches >= shape.num_ranks;
  switch (kind) {
    case PipelineKind::kNaive: return others;
    case PipelineKind::kGpipe:
    case PipelineKind::k1F1B: return others / m;
    case PipelineKind::kInterleaved:
    case PipelineKind::kLoopedBfs:
      if (!fills) return std::nullopt;
      return others / (shape.stages_per_rank * m);
    case PipelineKind::kZbH1:
    case PipelineKind::kInterleavedZb:
    case PipelineKind::kZbV:
      if (!fills || (kind == PipelineKind::kZbV && m < 2 * others + 1)) return std::nullopt;
      return others / (3 * shape.stages_per_rank * m);
    default: return std::nullopt;
  }
}

std::optional<int64_t> in_flight_formula(PipelineKind kind, const PipelineShape& shape, int rank) {
  const int64_t p = shape.num_ranks;
  const int64_t m = shape.num_micro_batches;
  const int64_t v = shape.stages_per_rank;
  switch (kind) {
    case PipelineKind::kNaive: return 1;
    case PipelineKind::kGpipe:
    case PipelineKind::kLoopedBfs: return m * v;
    case PipelineKind::k1F1B: return std::min(p - rank, m);
    case PipelineKind::kInterleaved:
      if (m % p != 0) return std::nullopt;
      return std::min((v - 1) * p + 2 * (p - 1 - rank) + 1, m * v);
    case PipelineKind::kZbH1: return std::min(p, m);
    case PipelineKind::kInterleavedZb:
      if (m % p != 0) return std::nullopt;
      return v * p;
    case PipelineKind::kZbV:
      if (m < 2 * p) return std::nullopt;
      return 2 * p;
    case PipelineKind::kDualPipeV: return 2 * p + 1;
    case PipelineKind::kUser: return std::nullopt;
  }
  return std::nullopt;
}

int64_t max_in_flight(const ActionList& actions) {
  return peak_bytes(actions, [](const Action&) { return KeptBytes{.forward = 1, .weights = 1}; });
}

std::vector<std::string> incomplete_passes(const PipelineSchedule& schedule) {
  std::vector<std::string> mistakes;
  std::map<Pass, std::set<ActionKind>> seen;
  for (int rank = 0; rank < schedule.shape.num_ranks; ++rank) {
    for (size_t i = 0; i < schedule.ranks[rank].size(); ++i) {
      const Action& action = schedule.ranks[rank][i];
      const bool is_own = action.stage >= 0 && action.stage < schedule.num_stages() &&
                          schedule.rank_of_stage[action.stage] == rank;
      if (!is_own) mistakes.push_back(place_of(rank, i, action) + ": the stage is not this rank's");
      if (is_own && is_compute(action.kind)) seen[pass_of(action)].insert(action.kind);
    }
  }
  for (int stage = 0; stage < schedule.num_stages(); ++stage) {
    for (int64_t i = 0; i < schedule.shape.num_micro_batches; ++i) {
      const std::set<ActionKind>& kinds = seen[{stage, i}];
      const auto lacks = [&](ActionKind kind) {
        mistakes.push_back(fmt::format("rank {} lacks {}", schedule.rank_of_stage[stage],
                                       to_string(Action{kind, stage, i})));
      };
      const bool input = kinds.contains(ActionKind::kBackwardInput);
      const bool weight = kinds.contains(ActionKind::kBackwardWeight);
      if (!kinds.contains(ActionKind::kForward)) lacks(ActionKind::kForward);
      if (!input && !weight && !kinds.contains(ActionKind::kBackward)) lacks(ActionKind::kBackward);
      if (input && !weight) lacks(ActionKind::kBackwardWeight);
      if (weight && !input) lacks(ActionKind::kBackwardInput);
    }
  }
  return mistakes;
}

Status check(const PipelineSchedule& schedule, int64_t buffered_messages) {
  if (schedule.ranks.size() != static_cast<size_t>(schedule.shape.num_ranks)) {
    return base::invalid_argument(
        fmt::format("lists of {} ranks for {}", schedule.ranks.size(), schedule.shape.num_ranks));
  }
  for (int rank = 0; rank < schedule.shape.num_ranks; ++rank) {
    HANJI_RETURN_IF_ERROR(check(schedule.ranks[rank]).at(fmt::format("rank {}", rank)));
  }
  const auto incomplete = incomplete_passes(schedule);
  if (!incomplete.empty()) return base::invalid_argument(incomplete.front());
  HANJI_RETURN_IF_ERROR(check_reduces(schedule));
  HANJI_RETURN_IF_ERROR(check_messages(schedule));
  PipelineTimes times;
  times.buffered_messages = buffered_messages;
  HANJI_RETURN_IF_ERROR(simulate(schedule, times).status());
  return check_formulas(schedule);
}

}  // namespace hanji::schedule
