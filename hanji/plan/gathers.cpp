#include "hanji/plan/gathers.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "hanji/plan/pipeline_plan.h"

namespace hanji::plan {
namespace {

using schedule::Action;
using schedule::ActionKind;

/// The layers of each stage of a rank.
std::map<int, layout::Range> own_stages(const Plan& plan, int rank) {
  const std::vector<layout::Range> stages = stages_of(plan);
  if (plan.mesh.degree("pp") == 1) return {{0, stages[0]}};
  const std::vector<int> ranks = ranks_of_stages(plan);
  std::map<int, layout::Range> own;
  for (size_t stage = 0; stage < stages.size(); ++stage) {
    if (ranks[stage] != plan.mesh.coordinate(rank, "pp")) continue;
    own.emplace(static_cast<int>(stage), stages[stage]);
  }
  return own;
}

/// The layers that read each parameter of a model.
std::vector<std::set<int64_t>> readers_of(const ModelFacts& model) {
  std::vector<std::set<int64_t>> readers;
  for (const ParameterFacts& one : model.parameters) readers.push_back({one.layer});
  for (size_t layer = 0; layer < model.layers.size(); ++layer) {
    for (const int64_t index : model.layers[layer].tied) {
      readers[index].insert(static_cast<int64_t>(layer));
    }
  }
  return readers;
}

struct ReadUnit {
  int64_t elements = 0;
  std::set<int64_t> layers = {};  ///< Of the whole model: several keep it from forward to backward.
};

/// A rank's units, with the layers that read them.
std::vector<ReadUnit> read_units(const Plan& plan, int rank) {
  const auto own = own_stages(plan, rank);
  std::vector<std::set<int64_t>> readers;  // of the rank's parameters
  for (std::set<int64_t>& layers : readers_of(plan.model)) {
    const bool here = std::ranges::any_of(layers, [&](int64_t layer) {
      return std::ranges::any_of(own, [&](const auto& stage) {
        return stage.second.begin <= layer && layer < stage.second.end;
      });
    });
    if (here) readers.push_back(std::move(layers));
  }
  std::vector<ReadUnit> units;
  const ShardPlan shards = *shards_of(plan, rank);
  for (const layout::Unit& unit : shards.units) {
    ReadUnit& read = units.emplace_back();
    read.elements = unit.flat.count;
    for (const int index : unit.parameters) {
      read.layers.insert(readers[index].begin(), readers[index].end());
    }
  }
  return units;
}

/// Follows which units are whole.
class Walk {
 public:
  /// `prefetches`: while a unit computes, the one that follows is gathered.
  Walk(std::vector<ReadUnit> units, std::map<int, layout::Range> stages, bool prefetches)
      : units_(std::move(units)),
        stages_(std::move(stages)),
        prefetches_(prefetches),
        whole_(units_.size()),
        holds_(units_.size()) {
    found_.times.resize(units_.size());
  }

  Gathers run(const schedule::ActionList& actions) {
    for (const Action& action : actions) take(action);
    return std::move(found_);
  }

 private:
  void take(const Action& action) {
    const auto stage = stages_.find(action.stage);
    if (stage == stages_.end()) return;
    switch (action.kind) {
      case ActionKind::kForward: return compute(stage->second, false);
      case ActionKind::kBackward:
      case ActionKind::kBackwardInput: return compute(stage->second, true);
      case ActionKind::kUnshard: return hold(stage->second);
      case ActionKind::kReshard: return release(stage->second);
      default: return;
    }
  }

  bool reads(size_t unit, layout::Range layers) const {
    return std::ranges::any_of(units_[unit].layers, [&](int64_t layer) {
      return layers.begin <= layer && layer < layers.end;
    });
  }

  void gather(size_t unit) {
    if (whole_[unit]) return;
    whole_[unit] = true;
    ++found_.times[unit];
    int64_t elements = 0;
    for (size_t i = 0; i < units_.size(); ++i) elements += whole_[i] ? units_[i].elements : 0;
    found_.peak_elements = std::max(found_.peak_elements, elements);
  }

  /// Layer by layer; what several layers read stays whole until a backward ends.
  void compute(layout::Range layers, bool is_backward) {
    for (int64_t i = 0; i < layers.size(); ++i) {
      const int64_t layer = is_backward ? layers.end - 1 - i : layers.begin + i;
      for (size_t unit = 0; unit < units_.size(); ++unit) {
        if (reads(unit, {layer, layer + 1})) gather(unit);
      }
      const int64_t next = layer + (is_backward ? -1 : 1);
      for (size_t unit = 0; prefetches_ && unit < units_.size(); ++unit) {
        const bool follows = units_[unit].layers == std::set<int64_t>{next};
        if (follows && next >= layers.begin && next < layers.end) gather(unit);
      }
      for (size_t unit = 0; unit < units_.size(); ++unit) {
        if (holds_[unit] == 0 && units_[unit].layers == std::set<int64_t>{layer}) {
          whole_[unit] = false;
        }
      }
    }
    for (size_t unit = 0; is_backward && unit < units_.size(); ++unit) {
      whole_[unit] = holds_[unit] > 0;
    }
  }

  void hold(layout::Range layers) {
    for (size_t unit = 0; unit < units_.size(); ++unit) {
      if (!reads(unit, layers)) continue;
      ++holds_[unit];
      gather(unit);
    }
  }

  void release(layout::Range layers) {
    for (size_t unit = 0; unit < units_.size(); ++unit) {
      if (reads(unit, layers)) whole_[unit] = --holds_[unit] > 0;
    }
  }

  std::vector<ReadUnit> units_;
  std::map<int, layout::Range> stages_;
  bool prefetches_;
  std::vector<bool> whole_;
  std::vector<int> holds_;
  Gathers found_;
};

bool has_equal_counts(const Plan& plan) {
  return std::ranges::all_of(plan.shares, [&](const DataShare& share) {
    return share.num_micro_batches == plan.shares[0].num_micro_batches;
  });
}

}  // namespace

bool gathers_parameters(const Plan& plan) {
  const ParallelConfig& parallel = plan.config.parallel;
  return cuts_parameters(parallel.data) && (!parallel.share_memory || shards_span_hosts(plan));
}

Reshard reshard_of(const Plan& plan) {
  const Reshard asked = plan.config.parallel.reshard;
  if (asked != Reshard::kAuto) return asked;
  const bool in_stages = plan.mesh.degree("pp") > 1;
  return in_stages || !has_equal_counts(plan) ? Reshard::kStep : Reshard::kMicroBatch;
}

Gathers gathers_of(const Plan& plan, int rank, const schedule::ActionList& actions,
                   Reshard reshard) {
  // Backwards of stages do not follow their forwards.
  const bool prefetches = plan.mesh.degree("pp") == 1;
  Walk walk(read_units(plan, rank), own_stages(plan, rank), prefetches);
  return walk.run(reshard == Reshard::kStep ? schedule::with_unshards(actions) : actions);
}

Gathers gathers_of(const Plan& plan, int rank) {
  if (!gathers_parameters(plan)) return {};
  return gathers_of(plan, rank, compute_actions(plan, rank), reshard_of(plan));
}

int64_t gathered_bytes(const Plan& plan, Reshard reshard) {
  int64_t bytes = 0;
  for (int rank = 0; rank < plan.ranks; ++rank) {
    const ShardPlan shards = *shards_of(plan, rank);
    const Gathers gathers = gathers_of(plan, rank, compute_actions(plan, rank), reshard);
    const int own = shard_index(plan, rank);
    for (size_t i = 0; i < shards.units.size(); ++i) {
      const int64_t others = shards.units[i].flat.count - shards.units[i].shards[own].size();
      bytes += gathers.times[i] * others * shards.element_bytes;
    }
  }
  return bytes;
}

int64_t gathered_between_hosts(const Plan& plan) {
  int64_t bytes = 0;
  for (int rank = 0; rank < plan.ranks; ++rank) {
    if (shard_index(plan, rank) > 0) continue;  // the first stands for its group
    const HostLayout hosts = hosts_of(plan.hosts, shard_group(plan, rank));
    const auto others = std::ssize(hosts.ranks) - 1;
    const ShardPlan shards = *shards_of(plan, rank);
    const std::vector<int64_t> times = gathers_of(plan, rank).times;
    for (size_t i = 0; i < shards.units.size(); ++i) {
      const int64_t count = times.empty() ? 1 : times[i];
      bytes += others * count * shards.units[i].flat.count * shards.element_bytes;
    }
  }
  return bytes;
}

Status check_gathers(const Plan& plan) {
  if (!gathers_parameters(plan) || reshard_of(plan) == Reshard::kStep) return {};
  if (has_equal_counts(plan)) return {};
  std::vector<int64_t> counts;
  for (const DataShare& share : plan.shares) counts.push_back(share.num_micro_batches);
  return base::invalid_argument(
      fmt::format("parallel.reshard = micro_batch gathers layers in each micro-batch, but data "
                  "coordinates have {} to {} of them; set parallel.reshard = \"step\", or another "
                  "train.global_batch",
                  std::ranges::min(counts), std::ranges::max(counts)));
}

}  // namespace hanji::plan
