// Who is whole while forward and backward call units.
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <utility>

#include "hanji/base/status.h"
#include "hanji/parallel/checkpointed.h"
#include "hanji/parallel/fsdp/internal/sharded_model.h"

namespace hanji::parallel {
namespace {

bool contains(const std::vector<size_t>& some, size_t one) {
  return std::ranges::find(some, one) != some.end();
}

}  // namespace

/// Before the first node of a unit's backward.
struct BeforeBackward : torch::autograd::FunctionPreHook {
  std::weak_ptr<ShardedModel> model;
  std::shared_ptr<UnitPass> pass;

  torch::autograd::variable_list operator()(const torch::autograd::variable_list& grads) override {
    const auto alive = model.lock();
    if (!alive) return grads;
    if (pass->spent) {
      throw Error(base::invalid_argument(
          "backward() ran twice on one forward() of " + alive->words(pass->unit) +
          "; call forward() again, or keep the graph by retain_graph"));
    }
    alive->before_backward(pass);
    alive->spent_.push_back(pass);
    return grads;
  }
};

Casts ShardedModel::enter(size_t index) {
  ModuleUnit& unit = units_[index];
  check_root_is_called(unit);
  if (unit.depth++ == 0) unit.entered = ++clock_;
  begin_call(index);
  Casts casts;
  if (pinned_) return casts;
  if (precision_.cast_forward_inputs.value_or(false)) casts.inputs = precision_.param_dtype;
  if (unit.is_root) casts.outputs = precision_.output_dtype;
  return casts;
}

/// Its outputs are to be cast, which nobody would do.
void ShardedModel::check_root_is_called(const ModuleUnit& unit) const {
  if (!precision_.output_dtype || unit.is_root || units_[0].depth > 0) return;
  if (pinned_ || in_checkpointed_backward()) return;
  throw Error(base::invalid_argument(
      caller_ + ": precision.output_dtype is of what the root's forward() gives, and unit " +
      unit.name +
      " is called outside of it; call hanji::unit(root)(...), or leave the option out"));
}

/// What is computed again is what the next part of backward needs, in the other direction.
void ShardedModel::begin_call(size_t index) {
  if (in_recomputation()) {
    units_[index].begun.reset();
    reshard_done({.unit = index, .left = ++clock_, .recomputed = current_recomputation()});
    unshard(units_[index]);
    return prefetch(index, -1);
  }
  constexpr size_t kMaxCalls = 1 << 16;  // of forwards that no backward() follows
  if (called_.size() >= kMaxCalls) called_.clear();
  if (at::GradMode::is_enabled()) called_.push_back(index);
  unshard(units_[index]);
  prefetch(index, 1);
}

/// Without calls to go by: a unit ends where an operation needs others and not it, but for what is
/// computed again, whose backward follows.
void ShardedModel::touch(const std::vector<size_t>& flats) {
  std::vector<size_t> needed;
  for (const size_t flat : flats) {
    if (!contains(needed, unit_of_flat_[flat])) needed.push_back(unit_of_flat_[flat]);
  }
  const std::vector<size_t> before = std::exchange(touched_, needed);
  for (const size_t index : before) {
    ModuleUnit& last = units_[index];
    if (contains(needed, index)) continue;
    if (!at::GradMode::is_enabled()) {
      reshard(last);
    } else if (reshards_after(last)) {
      reshard_after_forward(last);
    }
  }
  for (const size_t index : needed) units_[index].begun.reset();
  for (const size_t index : needed) {
    if (!contains(before, index) || !is_unsharded(units_[index])) begin_call(index);
  }
}

/// After a forward: not if its backward comes next.
bool ShardedModel::reshards_after(const ModuleUnit& unit) const {
  return reshards_after_forward_ && !unit.is_root && !in_recomputation();
}

bool ShardedModel::is_unsharded(const ModuleUnit& unit) const {
  return std::ranges::all_of(unit.flats, [&](size_t flat) { return flats_[flat]->is_unsharded(); });
}

void ShardedModel::leave(size_t index, const std::vector<at::Tensor>& outputs) {
  ModuleUnit& unit = units_[index];
  --unit.depth;
  const bool learns = std::ranges::any_of(outputs, [](const at::Tensor& output) {
    return output.defined() && output.requires_grad() && output.grad_fn() != nullptr;
  });
  if (learns) watch(index, unit.entered, outputs);
  if (unit.depth > 0) return;
  if (!learns) return reshard(unit);
  if (reshards_after(unit)) reshard_after_forward(unit);
}

void ShardedModel::watch(size_t index, int64_t entered, const std::vector<at::Tensor>& outputs) {
  const auto pass =
      std::make_shared<UnitPass>(UnitPass{index, entered, ++clock_, current_recomputation()});
  for (const at::Tensor& output : outputs) {
    if (!output.defined() || output.grad_fn() == nullptr) continue;
    auto hook = std::make_unique<BeforeBackward>();
    hook->model = weak_from_this();
    hook->pass = pass;
    output.grad_fn()->add_pre_hook(std::move(hook));
  }
}

std::string ShardedModel::words(size_t index) const {
  const ModuleUnit& unit = units_[index];
  const std::string name = unit.is_root ? "the root unit" : "unit " + unit.name;
  if (unit.flats.empty()) return name;
  return name + ", which holds parameter " + flats_[unit.flats[0]]->parameters()[0].name;
}

void ShardedModel::before_backward(const std::shared_ptr<UnitPass>& pass) {
  gradients_->engine().arm();
  reshard_done(*pass);
  ModuleUnit& unit = units_[pass->unit];
  if (unit.holds_frozen() && !unit.is_root) unit.begun = pass;
  unshard(unit);
  prefetch(pass->unit, -1);
}

/// No gradient tells when frozen parameters have been read for the last time. But autograd runs what
/// was computed last first, so when a call's backward begins that of all later calls is over, as it
/// is of all calls that were made to compute again what has been differentiated by now.
void ShardedModel::reshard_done(const UnitPass& next) {
  if (!reshards_ || units_[next.unit].is_root) return;
  for (size_t i = 0; i < units_.size(); ++i) {
    ModuleUnit& unit = units_[i];
    if (unit.begun == nullptr || i == next.unit) continue;
    const UnitPass& last = *unit.begun;
    const bool is_later = last.recomputed == next.recomputed && last.entered > next.left;
    if (!is_later && (last.recomputed == nullptr || *last.recomputed)) continue;
    unit.begun.reset();
    // Else its other calls would gather it once more.
    if (reshards_after_forward_ || std::ranges::count(called_, i) <= 1) reshard_after_forward(unit);
  }
}

/// The unit that was called after (or before) this one; where it was called often, the last time.
std::optional<size_t> ShardedModel::neighbour(size_t unit, int direction) const {
  const std::vector<size_t>& order = order_.empty() || direction < 0 ? called_ : order_;
  for (size_t i = order.size(); i-- > 0;) {
    if (order[i] != unit) continue;
    if (direction < 0 && i > 0) return order[i - 1];
    if (direction > 0 && i + 1 < order.size()) return order[i + 1];
    break;
  }
  return std::nullopt;
}

size_t ShardedModel::num_unsharded() const {
  return std::ranges::count_if(units_, [&](const ModuleUnit& unit) {
    if (unit.is_root) return false;
    const FlatUnit& first = *flats_[unit.flats[0]];
    return first.is_unsharded() || first.is_unsharding();
  });
}

/// The neighbour is gathered as far as the limit allows; the shard of the one to be gathered after
/// it is read meanwhile.
void ShardedModel::prefetch(size_t unit, int direction) {
  if (residence_ != Residence::kGathered || pinned_) return;
  auto next = neighbour(unit, direction);
  if (!next || units_[*next].is_root) return;
  if (num_unsharded() < static_cast<size_t>(max_in_flight_)) {
    for (const size_t flat : units_[*next].flats) flats_[flat]->begin_unshard();
    next = neighbour(*next, direction);
  }
  if (!next || !store_) return;
  for (const size_t flat : units_[*next].flats) flats_[flat]->read_ahead();
}

void ShardedModel::on_unit_done(size_t learning) {
  if (!reshards_) return;
  ModuleUnit& unit = units_[unit_of_learning_[learning]];
  if (++unit.num_done == unit.num_learning && !unit.holds_frozen()) reshard(unit);
}

void ShardedModel::on_end_of_backward() {
  if (!called_.empty()) order_ = std::exchange(called_, {});
  for (ModuleUnit& unit : units_) {
    unit.num_done = 0;
    unit.begun.reset();
  }
  if (!holds_batch_ || gradients_->engine().fold()->is_last()) reshard_all();
  for (const auto& pass : spent_) pass->spent = !gradients_->engine().keeps_graph();
  spent_.clear();
}

}  // namespace hanji::parallel
