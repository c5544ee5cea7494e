#include "hanji/schedule/pipeline_schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <deque>
#include <map>

#include "hanji/schedule/internal/stage_messages.h"
#include "hanji/schedule/step_list.h"

namespace hanji::schedule {
namespace {

constexpr int64_t kMaxPasses = int64_t{1} << 19;
/// Of the order that zbv has of 2p - 1 micro-batches or more, before those are left out that there are not.
constexpr int64_t kMaxOrderedPasses = int64_t{1} << 22;
constexpr int kMaxStagesPerRank = 64;

struct KindFacts {
  PipelineKind kind;
  std::string_view name;
  int least_stages_per_rank;
  int most_stages_per_rank;
};

constexpr std::array kFacts = {
    KindFacts{PipelineKind::kNaive, "naive", 1, 1},
    KindFacts{PipelineKind::kGpipe, "gpipe", 1, 1},
    KindFacts{PipelineKind::k1F1B, "1f1b", 1, 1},
    KindFacts{PipelineKind::kInterleaved, "interleaved", 1, kMaxStagesPerRank},
    KindFacts{PipelineKind::kLoopedBfs, "bfs", 1, kMaxStagesPerRank},
    KindFacts{PipelineKind::kZbH1, "zbh1", 1, 1},
    KindFacts{PipelineKind::kInterleavedZb, "interleaved_zb", 1, kMaxStagesPerRank},
    KindFacts{PipelineKind::kZbV, "zbv", 2, 2},
    KindFacts{PipelineKind::kDualPipeV, "dualpipev", 2, 2},
    KindFacts{PipelineKind::kUser, "user", 1, kMaxStagesPerRank},
};

const KindFacts& facts_of(PipelineKind kind) { return kFacts[static_cast<size_t>(kind)]; }

bool is_v(PipelineKind kind) {
  return kind == PipelineKind::kZbV || kind == PipelineKind::kDualPipeV;
}

/// `pattern` is taken `count` times: F, B, I (backward_input) and W (backward_weight) of the next
/// micro-batch, of any stage of the rank or of its stage 0 or 1 (F1).
struct Phase {
  int64_t count = 0;
  std::string_view pattern;
};

struct RankOrder {
  std::vector<Phase> phases;
  std::vector<Pass> forwards;   // of any stage, in order
  std::vector<Pass> backwards;  // likewise
  std::vector<int> stages;      // of the rank
};

/// Micro-batches per visit of a stage: a round goes through all stages before the next begins.
int64_t round_of(PipelineKind kind, const PipelineShape& shape) {
  if (kind != PipelineKind::kInterleaved && kind != PipelineKind::kInterleavedZb) {
    return shape.num_micro_batches;
  }
  const int64_t rounds = std::max<int64_t>(1, shape.num_micro_batches / shape.num_ranks);
  return shape.num_micro_batches / rounds;
}

/// Forwards before the first backward, were there micro-batches enough.
int64_t warm_up(PipelineKind kind, const PipelineShape& shape, int rank) {
  const int64_t below = shape.num_ranks - 1 - rank;
  const int64_t first_visits = (shape.stages_per_rank - 1) * round_of(kind, shape);
  switch (kind) {
    case PipelineKind::kNaive: return 0;
    case PipelineKind::k1F1B:
    case PipelineKind::kZbH1:
    case PipelineKind::kInterleavedZb: return first_visits + below;
    case PipelineKind::kInterleaved: return first_visits + 2 * below;
    default: return kMaxPasses;
  }
}

std::vector<Phase> loop_phases(int64_t passes, int64_t warm_up) {
  const int64_t ahead = std::min(warm_up, passes);
  return {{ahead, "F"}, {passes - ahead, "F B"}, {ahead, "B"}};
}

/// The backward_weights of a rank begin `delay` backwards late.
std::vector<Phase> zero_bubble_phases(int64_t passes, int64_t warm_up, int64_t delay) {
  const int64_t ahead = std::min(warm_up, passes);
  const int64_t late = std::min(delay, passes);
  const int64_t late_pairs = std::min(late, passes - ahead);
  const int64_t late_backwards = late - late_pairs;
  return {{ahead, "F"},
          {late_pairs, "F I"},
          {passes - ahead - late_pairs, "F I W"},
          {late_backwards, "I"},
          {ahead - late_backwards, "I W"},
          {late, "W"}};
}

/// For at least 2p - 1 micro-batches; fewer take the same order, the others left out.
std::vector<Phase> zbv_phases(const PipelineShape& shape, int64_t rank) {
  const int64_t p = shape.num_ranks;
  const int64_t m = std::max(shape.num_micro_batches, 2 * p - 1);
  return {{2 * (p - rank) - 1, "F0"},
          {rank, "F1 F0"},
          {p - rank, "F1 I1 W1"},
          {m - 2 * p + rank + 1, "F0 I0 W0 F1 I1 W1"},
          {p - rank - 1, "I0 W0 F1 I1 W1"},
          {rank, "I0 I1"},
          {p - rank, "I0 W0"},
          {rank, "W1"},
          {rank, "W0"}};
}

std::vector<Phase> dual_pipe_phases(const PipelineShape& shape, int64_t rank) {
  const int64_t below = shape.num_ranks - 1 - rank;
  const int64_t half = (rank + 1) / 2;
  const int64_t turn = rank % 2 == 0 ? 1 : 0;
  return {{2 * below, "F0"},
          {rank + 1, "F0 F1"},
          {below, "I1 W F1"},
          {shape.num_micro_batches - 2 * shape.num_ranks + rank + 1, "F0 B1 F1 B0"},
          {below, "B1 F1 B0"},
          {half, "B1 B0"},
          {turn, "B1 I0"},
          {rank + 1 - half - turn, "I1 I0"},
          {below, "W I0"},
          {rank + 1, "W"}};
}

std::vector<Pass> rounds(const std::vector<int>& stages, int64_t micro_batches, int64_t round) {
  std::vector<Pass> passes;
  for (int64_t begin = 0; begin < micro_batches; begin += round) {
    for (const int stage : stages) {
      for (int64_t i = begin; i < begin + round; ++i) passes.emplace_back(stage, i);
    }
  }
  return passes;
}

RankOrder order_of(PipelineKind kind, const PipelineShape& shape, int rank) {
  RankOrder order;
  for (int i = 0; i < shape.stages_per_rank; ++i) {
    const bool back_up = is_v(kind) && i == 1;
    order.stages.push_back(back_up ? 2 * shape.num_ranks - 1 - rank : i * shape.num_ranks + rank);
  }
  if (kind == PipelineKind::kZbV) order.phases = zbv_phases(shape, rank);
  if (kind == PipelineKind::kDualPipeV) order.phases = dual_pipe_phases(shape, rank);
  if (is_v(kind)) return order;
  const int64_t passes = shape.num_micro_batches * shape.stages_per_rank;
  const int64_t ahead = warm_up(kind, shape, rank);
  const bool splits = kind == PipelineKind::kZbH1 || kind == PipelineKind::kInterleavedZb;
  order.phases = splits ? zero_bubble_phases(passes, ahead, rank) : loop_phases(passes, ahead);
  const int64_t round = round_of(kind, shape);
  order.forwards = rounds(order.stages, shape.num_micro_batches, round);
  order.backwards =
      rounds({order.stages.rbegin(), order.stages.rend()}, shape.num_micro_batches, round);
  if (kind == PipelineKind::kLoopedBfs) {
    order.backwards.assign(order.forwards.rbegin(), order.forwards.rend());
  }
  return order;
}

/// Turns an order into computations.
class Takes {
 public:
  explicit Takes(const RankOrder& order) : order_(order) {}

  ActionList run() {
    for (const Phase& phase : order_.phases) {
      for (int64_t i = 0; i < phase.count; ++i) take(phase.pattern);
    }
    return std::move(actions_);
  }

 private:
  void take(std::string_view pattern) {
    for (size_t i = 0; i < pattern.size(); ++i) {
      if (pattern[i] == ' ') continue;
      const char letter = pattern[i];
      const bool names_stage = i + 1 < pattern.size() && pattern[i + 1] != ' ';
      const int stage = names_stage ? order_.stages[pattern[++i] - '0'] : -1;
      switch (letter) {
        case 'F': add(ActionKind::kForward, next(order_.forwards, forwards_, stage)); break;
        case 'B': add(ActionKind::kBackward, next(order_.backwards, backwards_, stage)); break;
        case 'I':
          waiting_.push_back(next(order_.backwards, backwards_, stage));
          add(ActionKind::kBackwardInput, waiting_.back());
          break;
        default: take_weight(stage);
      }
    }
  }

  /// The longest waiting, if one does.
  void take_weight(int stage) {
    const auto found = std::ranges::find_if(
        waiting_, [stage](const Pass& pass) { return stage < 0 || pass.first == stage; });
    if (found == waiting_.end()) return;
    add(ActionKind::kBackwardWeight, *found);
    waiting_.erase(found);
  }

  /// taken[-1] counts those of any stage.
  static Pass next(const std::vector<Pass>& in_order, std::map<int, int64_t>& taken, int stage) {
    const int64_t count = taken[stage]++;
    return stage < 0 ? in_order[static_cast<size_t>(count)] : Pass{stage, count};
  }

  void add(ActionKind kind, const Pass& pass) {
    actions_.push_back({kind, pass.first, pass.second});
  }

  const RankOrder& order_;
  std::map<int, int64_t> forwards_, backwards_;
  std::deque<Pass> waiting_;
  ActionList actions_;
};

Status check_shape(PipelineKind kind, const PipelineShape& shape) {
  const auto [ranks, micro_batches, stages] = shape;
  const KindFacts& facts = facts_of(kind);
  const auto refuse = [&facts](const std::string& why) {
    return base::invalid_argument(fmt::format("schedule {}: {}", facts.name, why));
  };
  if (kind == PipelineKind::kUser) return refuse("it is read from a file, not made");
  if (ranks < 1 || micro_batches < 1) {
    return refuse(fmt::format("{} ranks and {} micro-batches; take at least one of each", ranks,
                              micro_batches));
  }
  if (stages < facts.least_stages_per_rank || stages > facts.most_stages_per_rank) {
    const bool is_fixed = facts.least_stages_per_rank == facts.most_stages_per_rank;
    return refuse(fmt::format("{} stages per rank; it takes {}{}", stages,
                              facts.least_stages_per_rank,
                              is_fixed ? "" : fmt::format(" to {}", facts.most_stages_per_rank)));
  }
  if (ranks > kMaxRanks) {
    return refuse(fmt::format("{} ranks; take at most {}", ranks, kMaxRanks));
  }
  if (micro_batches > kMaxPasses / ranks / stages) {
    return refuse(
        fmt::format("{} ranks times {} stages times {} micro-batches; at most {} together", ranks,
                    stages, micro_batches, kMaxPasses));
  }
  if (kind == PipelineKind::kZbV && 2 * ranks * (2 * ranks - 1) > kMaxOrderedPasses) {
    return refuse(
        fmt::format("{} ranks are ordered as with {} micro-batches; take at most 1024 ranks", ranks,
                    2 * ranks - 1));
  }
  if (micro_batches % round_of(kind, shape) != 0) {
    const int64_t whole = micro_batches / ranks;
    return refuse(fmt::format("{} micro-batches do not fill {} rounds; take {} or {}",
                              micro_batches, whole, whole * ranks, (whole + 1) * ranks));
  }
  if (kind == PipelineKind::kDualPipeV && micro_batches < 2 * ranks) {
    return refuse(fmt::format("{} micro-batches on {} ranks; take at least {}, one per stage",
                              micro_batches, ranks, 2 * ranks));
  }
  return {};
}

}  // namespace

std::string_view name_of(PipelineKind kind) { return facts_of(kind).name; }

std::vector<PipelineKind> pipeline_kinds() {
  std::vector<PipelineKind> kinds;
  for (const KindFacts& facts : kFacts) {
    if (facts.kind != PipelineKind::kUser) kinds.push_back(facts.kind);
  }
  return kinds;
}

std::optional<PipelineKind> pipeline_kind_named(std::string_view name) {
  for (const PipelineKind kind : pipeline_kinds()) {
    if (name_of(kind) == name) return kind;
  }
  return std::nullopt;
}

int stages_per_rank(PipelineKind kind, int wanted) {
  const KindFacts& facts = facts_of(kind);
  return std::clamp(wanted, facts.least_stages_per_rank, facts.most_stages_per_rank);
}

Result<PipelineSchedule> pipeline_schedule(PipelineKind kind, const PipelineShape& shape) {
  HANJI_RETURN_IF_ERROR(check_shape(kind, shape));
  PipelineSchedule schedule;
  schedule.kind = kind;
  schedule.shape = shape;
  schedule.rank_of_stage.resize(static_cast<size_t>(shape.num_ranks * shape.stages_per_rank));
  for (int rank = 0; rank < shape.num_ranks; ++rank) {
    const RankOrder order = order_of(kind, shape, rank);
    for (const int stage : order.stages) schedule.rank_of_stage[stage] = rank;
    ActionList actions = Takes(order).run();
    std::erase_if(actions, [&](const Action& action) {
      return action.micro_batch >= shape.num_micro_batches;
    });
    schedule.ranks.push_back(std::move(actions));
  }
  internal::add_messages(schedule);
  return schedule;
}

}  // namespace hanji::schedule
