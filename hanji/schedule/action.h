#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "hanji/base/status.h"

namespace hanji::schedule {

enum class ActionKind : uint8_t {
  kForward,
  kBackward,        ///< Both of the next two.
  kBackwardInput,   ///< The gradient of the stage's input, for which the stage before waits.
  kBackwardWeight,  ///< The gradients of its parameters.
  kSend,            ///< What the stage has made goes to the stage that uses it.
  kReceive,
  kUnshard,  ///< Parameters of the stage become whole.
  kReshard,
  kReduce,  ///< The stage's gradients are complete: they are summed over the data coordinates.
};
std::string_view name_of(ActionKind kind);
/// Forwards and backwards of any kind.
bool is_compute(ActionKind kind);
/// Whether an action computes gradients of its stage's parameters. `splits`: the stage leaves them to
/// backward_weight; else backward_input computes them too, and backward_weight nothing.
bool adds_gradients(ActionKind kind, bool splits = true);

/// One thing that a rank does in a step, with one stage (a range of a model's layers) and one
/// micro-batch. Unshard, reshard and reduce are of the whole stage; their micro_batch is 0.
struct Action {
  ActionKind kind = ActionKind::kForward;
  int stage = 0;
  int64_t micro_batch = 0;
  /// Of a send or receive, the stage at the other end: one above takes outputs and gives their
  /// gradients, one below the reverse.
  int peer = -1;
  bool operator==(const Action&) const = default;
};

/// "backward of stage 0, micro-batch 2"; "send of stage 0, micro-batch 2, to stage 1".
std::string to_string(const Action& action);

/// A micro-batch's way through a stage: stage, micro-batch.
using Pass = std::pair<int, int64_t>;
Pass pass_of(const Action& action);

/// A rank's step, in order.
using ActionList = std::vector<Action>;

/// A step of a model that is one stage: forward and backward of each micro-batch in turn, then the
/// sum of the gradients.
ActionList train_actions(int64_t num_micro_batches);

/// Evaluation: the forwards of one rank's stages, with their messages, a micro-batch after the other.
ActionList forward_actions(const std::vector<int>& rank_of_stage, int rank,
                           int64_t num_micro_batches);

/// Checks that each micro-batch goes through a stage at most once, its backward after its forward
/// and its backward_weight after its backward_input; that nothing is sent before it is computed;
/// that no backward of a stage follows its reduce; that a stage reduces at most once, after a
/// backward; and that a stage which is unsharded at all computes between an unshard and a reshard, which
/// follows.
///
/// Errors  invalid_argument names the first action that is out of order.
Status check(const ActionList& actions);

/// Whether actions[index] is the last that adds to its stage's gradients before they are reduced:
/// they may leave while it runs. Without a reduce none is.
bool completes_gradients(const ActionList& actions, size_t index);

/// Adds an unshard of each stage before its first forward or backward, and a reshard after its last one.
ActionList with_unshards(const ActionList& actions);

/// The micro-batches of a stage in the order in which their backwards add to its gradients. `splits`: as
/// of adds_gradients().
std::vector<int64_t> gradient_order(const ActionList& actions, int stage, bool splits);

/// What a micro-batch keeps in a stage, in bytes.
struct KeptBytes {
  int64_t forward = 0;  ///< From its forward to its backward or backward_input.
  int64_t weights = 0;  ///< From its backward_input to its backward_weight.
  int64_t growth = 0;   ///< By which backward_input exceeds `forward` before it ends.
};

/// The most bytes that a rank keeps for backwards to come, at any point of a checked list.
///
/// Units   `kept(forward)` is of that forward's micro-batch. A forward that has no backward leaves nothing
///         once it is over.
int64_t peak_bytes(const ActionList& actions, const std::function<KeptBytes(const Action&)>& kept);

}  // namespace hanji::schedule
