#include "hanji/schedule/action.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

namespace hanji::schedule {
namespace {

/// What a walk has seen so far.
class Progress {
 public:
  explicit Progress(const ActionList& actions) {
    for (const Action& action : actions) {
      if (action.kind == ActionKind::kUnshard) sharded_.insert(action.stage);
    }
  }

  /// Empty, or why the action cannot come now.
  std::string_view take(const Action& action) {
    if (is_compute(action.kind) && sharded_.contains(action.stage)) {
      return "the stage's parameters are sharded";
    }
    switch (action.kind) {
      case ActionKind::kForward: return once(forwards_, action, "it has run before");
      case ActionKind::kBackward:
        if (!backward_inputs_.insert(pass_of(action)).second) return "it has run before";
        return backward(action, forwards_, "its forward has not run");
      case ActionKind::kBackwardInput:
        if (!forwards_.contains(pass_of(action))) return "its forward has not run";
        return once(backward_inputs_, action, "it has run before");
      case ActionKind::kBackwardWeight:
        return backward(action, backward_inputs_, "its backward_input has not run");
      case ActionKind::kReduce:
        if (!with_gradients_.contains(action.stage)) return "no backward of the stage has run";
        return reduced_.insert(action.stage).second ? "" : "it has run before";
      case ActionKind::kSend: {
        const auto& computed = action.peer > action.stage ? forwards_ : backward_inputs_;
        return computed.contains(pass_of(action)) ? "" : "what it sends has not been computed";
      }
      case ActionKind::kReceive: return "";
      case ActionKind::kUnshard:
        sharded_.erase(action.stage);
        return unsharded_.insert(action.stage).second ? "" : "it has run before";
      case ActionKind::kReshard:
        sharded_.insert(action.stage);
        return unsharded_.erase(action.stage) > 0 ? "" : "the stage has not been unsharded";
    }
    return "its kind is unknown";
  }

  std::optional<int> left_unsharded() const {
    return unsharded_.empty() ? std::nullopt : std::optional(*unsharded_.begin());
  }

 private:
  static std::string_view once(std::set<Pass>& done, const Action& action, std::string_view why) {
    return done.insert(pass_of(action)).second ? "" : why;
  }

  std::string_view backward(const Action& action, const std::set<Pass>& needed,
                            std::string_view why) {
    if (!needed.contains(pass_of(action))) return why;
    if (reduced_.contains(action.stage)) return "the stage's gradients have been reduced";
    with_gradients_.insert(action.stage);
    return once(backwards_, action, "it has run before");
  }

  std::set<Pass> forwards_, backward_inputs_, backwards_;
  std::set<int> with_gradients_, reduced_;
  std::set<int> unsharded_,
      sharded_;  ///< Sharded: from the start, where an unshard comes, or again.
};

}  // namespace

std::string_view name_of(ActionKind kind) {
  switch (kind) {
    case ActionKind::kForward: return "forward";
    case ActionKind::kBackward: return "backward";
    case ActionKind::kBackwardInput: return "backward_input";
    case ActionKind::kBackwardWeight: return "backward_weight";
    case ActionKind::kSend: return "send";
    case ActionKind::kReceive: return "receive";
    case ActionKind::kUnshard: return "unshard";
    case ActionKind::kReshard: return "reshard";
    case ActionKind::kReduce: return "reduce";
  }
  return "unknown";
}

bool is_compute(ActionKind kind) { return kind <= ActionKind::kBackwardWeight; }

bool adds_gradients(ActionKind kind, bool splits) {
  return kind == ActionKind::kBackward ||
         kind == (splits ? ActionKind::kBackwardWeight : ActionKind::kBackwardInput);
}

Pass pass_of(const Action& action) { return {action.stage, action.micro_batch}; }

std::string to_string(const Action& action) {
  std::string text = fmt::format("{} of stage {}, micro-batch {}", name_of(action.kind),
                                 action.stage, action.micro_batch);
  if (action.peer < 0) return text;
  const bool is_send = action.kind == ActionKind::kSend;
  return text + fmt::format(", {} stage {}", is_send ? "to" : "from", action.peer);
}

ActionList train_actions(int64_t num_micro_batches) {
  ActionList actions;
  for (int64_t i = 0; i < num_micro_batches; ++i) {
    actions.push_back({.kind = ActionKind::kForward, .micro_batch = i});
    actions.push_back({.kind = ActionKind::kBackward, .micro_batch = i});
  }
  if (num_micro_batches > 0) actions.push_back({.kind = ActionKind::kReduce});
  return actions;
}

ActionList forward_actions(const std::vector<int>& rank_of_stage, int rank,
                           int64_t num_micro_batches) {
  ActionList actions;
  const auto last = static_cast<int>(rank_of_stage.size()) - 1;
  for (int64_t i = 0; i < num_micro_batches; ++i) {
    for (int stage = 0; stage <= last; ++stage) {
      if (rank_of_stage[stage] != rank) continue;
      if (stage > 0 && rank_of_stage[stage - 1] != rank) {
        actions.push_back({ActionKind::kReceive, stage, i, stage - 1});
      }
      actions.push_back({.stage = stage, .micro_batch = i});
      if (stage < last && rank_of_stage[stage + 1] != rank) {
        actions.push_back({ActionKind::kSend, stage, i, stage + 1});
      }
    }
  }
  return actions;
}

Status check(const ActionList& actions) {
  Progress progress(actions);
  for (size_t i = 0; i < actions.size(); ++i) {
    const std::string_view why = progress.take(actions[i]);
    if (why.empty()) continue;
    return base::invalid_argument(
        fmt::format("action {}, {}, is out of order: {}", i, to_string(actions[i]), why));
  }
  if (const auto stage = progress.left_unsharded()) {
    return base::invalid_argument(fmt::format(
        "stage {} is not resharded: the next step would compute with stale parameters", *stage));
  }
  return {};
}

ActionList with_unshards(const ActionList& actions) {
  std::map<int, std::pair<size_t, size_t>> ends;  // first and last computation of each stage
  for (size_t i = 0; i < actions.size(); ++i) {
    if (!is_compute(actions[i].kind)) continue;
    ends.try_emplace(actions[i].stage, i, i).first->second.second = i;
  }
  ActionList all;
  for (size_t i = 0; i < actions.size(); ++i) {
    const int stage = actions[i].stage;
    const auto found = ends.find(stage);
    const bool is_end = found != ends.end() && is_compute(actions[i].kind);
    if (is_end && found->second.first == i) all.push_back({ActionKind::kUnshard, stage});
    all.push_back(actions[i]);
    if (is_end && found->second.second == i) all.push_back({ActionKind::kReshard, stage});
  }
  return all;
}

bool completes_gradients(const ActionList& actions, size_t index) {
  const Action& last = actions[index];
  if (!adds_gradients(last.kind)) return false;
  const auto next =
      std::find_if(actions.begin() + static_cast<std::ptrdiff_t>(index) + 1, actions.end(),
                   [&last](const Action& action) {
                     return action.stage == last.stage &&
                            (adds_gradients(action.kind) || action.kind == ActionKind::kReduce);
                   });
  return next != actions.end() && next->kind == ActionKind::kReduce;
}

std::vector<int64_t> gradient_order(const ActionList& actions, int stage, bool splits) {
  std::vector<int64_t> order;
  for (const Action& action : actions) {
    if (adds_gradients(action.kind, splits) && action.stage == stage) {
      order.push_back(action.micro_batch);
    }
  }
  return order;
}

int64_t peak_bytes(const ActionList& actions, const std::function<KeptBytes(const Action&)>& kept) {
  std::set<Pass> has_backward;
  for (const Action& action : actions) {
    if (adds_gradients(action.kind)) has_backward.insert(pass_of(action));
  }
  std::map<Pass, KeptBytes> alive;
  int64_t now = 0;
  int64_t peak = 0;
  for (const Action& action : actions) {
    if (!is_compute(action.kind)) continue;
    KeptBytes& own = alive[pass_of(action)];
    switch (action.kind) {
      case ActionKind::kForward:
        if (has_backward.contains(pass_of(action))) own = kept(action);
        now += own.forward;
        break;
      case ActionKind::kBackward: now -= own.forward; break;
      case ActionKind::kBackwardInput:
        peak = std::max(peak, now + own.growth);
        now += own.weights - own.forward;
        break;
      default: now -= own.weights;
    }
    peak = std::max(peak, now);
  }
  return peak;
}

}  // namespace hanji::schedule
