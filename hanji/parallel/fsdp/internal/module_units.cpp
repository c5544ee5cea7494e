#include "hanji/parallel/fsdp/internal/module_units.h"

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <set>
#include <utility>

#include "hanji/base/status.h"
#include "hanji/parallel/checkpointed.h"
#include "hanji/parallel/fsdp/internal/sharded_model.h"

namespace hanji::parallel {
namespace {

bool contains(const std::vector<size_t>& some, size_t one) {
  return std::ranges::find(some, one) != some.end();
}

/// Before the first node of a unit's backward.
struct BeforeBackward : torch::autograd::FunctionPreHook {
  std::weak_ptr<ShardedModel> model;
  std::shared_ptr<UnitPass> pass;

  torch::autograd::variable_list operator()(const torch::autograd::variable_list& grads) override {
    if (const auto alive = model.lock()) alive->before_backward(pass);
    return grads;
  }
};

}  // namespace

ModuleUnits::ModuleUnits(std::weak_ptr<ShardedModel> model, std::string caller, UnitRules rules)
    : model_(std::move(model)), caller_(std::move(caller)), rules_(std::move(rules)) {}

bool ModuleUnits::ModuleUnit::is_unsharded() const {
  return std::ranges::all_of(flats, &FlatUnit::is_unsharded);
}

void ModuleUnits::add(const UnitRequest& request, const std::vector<FlatUnit*>& flats) {
  if (flats.empty() && !request.is_root) return;
  ModuleUnit unit{.name = request.name,
                  .flats = flats,
                  .is_root = request.is_root,
                  .stays_whole = request.is_root || request.layers.size() > 1};
  unit.num_learning =
      std::ranges::count_if(flats, [](const FlatUnit* flat) { return flat->part().learns(); });
  unit_of_flat_.insert(unit_of_flat_.end(), flats.size(), units_.size());
  if (request.module != nullptr) by_module_[request.module] = units_.size();
  for (const int64_t layer : request.layers) by_layer_[layer].push_back(units_.size());
  units_.push_back(std::move(unit));
}

/// In order, each once.
std::vector<size_t> ModuleUnits::read_in(layout::Range layers) const {
  std::set<size_t> found;
  for (int64_t layer = layers.begin; layer < layers.end; ++layer) {
    const auto read = read_by(layer);
    found.insert(read.begin(), read.end());
  }
  return {found.begin(), found.end()};
}

void ModuleUnits::hold(layout::Range layers) {
  const std::vector<size_t> read = read_in(layers);
  for (const size_t index : read) {
    ++units_[index].holds;
    if (pinned_) continue;
    for (FlatUnit* flat : units_[index].flats) flat->memory().begin_unshard();
  }
  for (const size_t index : read) unshard(units_[index]);
}

void ModuleUnits::release(layout::Range layers) {
  for (const size_t index : read_in(layers)) {
    ModuleUnit& unit = units_[index];
    if (unit.holds == 0) {
      throw Error(base::invalid_argument("reshard(): " + to_string(unit) +
                                         " is not unsharded; call unshard() of the same layers"));
    }
    if (--unit.holds > 0 || pinned_) continue;
    for (FlatUnit* flat : unit.flats) flat->reshard();
  }
}

void ModuleUnits::check_released() const {
  const auto held = std::ranges::find_if(units_, [](const auto& unit) { return unit.holds > 0; });
  if (held == units_.end()) return;
  throw Error(base::invalid_argument("step(): " + to_string(*held) +
                                     " is still unsharded, and would go on with stale values; call "
                                     "reshard() of its layers first"));
}

std::optional<size_t> ModuleUnits::find(const torch::nn::Module& module) const {
  const auto found = by_module_.find(&module);
  return found == by_module_.end() ? std::nullopt : std::optional(found->second);
}

std::span<const size_t> ModuleUnits::read_by(int64_t layer) const {
  const auto found = by_layer_.find(layer);
  if (found == by_layer_.end()) return {};
  return found->second;
}

Casts ModuleUnits::enter(size_t index) {
  ModuleUnit& unit = units_[index];
  check_root_is_called(unit);
  if (unit.depth++ == 0) unit.entered = ++clock_;
  begin_call(index);
  Casts casts;
  if (pinned_) return casts;
  if (rules_.precision.cast_forward_inputs.value_or(false)) {
    casts.inputs = rules_.precision.param_dtype;
  }
  if (unit.is_root) casts.outputs = rules_.precision.output_dtype;
  return casts;
}

/// Its outputs are to be cast, which nobody would do.
void ModuleUnits::check_root_is_called(const ModuleUnit& unit) const {
  if (!rules_.precision.output_dtype || unit.is_root || units_[0].depth > 0) return;
  if (pinned_ || in_checkpointed_backward()) return;
  throw Error(base::invalid_argument(
      caller_ + ": precision.output_dtype is of what the root's forward() gives, and unit " +
      unit.name +
      " is called outside of it; call hanji::unit(root)(...), or leave the option out"));
}

/// A recomputed part is the one that the next part of backward needs, in the other direction.
void ModuleUnits::begin_call(size_t index) {
  if (in_recomputation()) {
    units_[index].begun.reset();
    reshard_done({.unit = index, .left = ++clock_, .recomputed = current_recomputation()});
    unshard(units_[index]);
    return prefetch(index, -1);
  }
  constexpr size_t kMaxCalls = 1 << 16;  // of forwards that no backward() follows
  if (called_.size() >= kMaxCalls) called_.clear();
  unshard(units_[index]);
  // Read again by a later layer, after which other units follow than after its own.
  if (units_[index].stays_whole && !units_[index].is_root && contains(called_, index)) return;
  if (at::GradMode::is_enabled()) called_.push_back(index);
  prefetch(index, 1);
}

/// Without calls to go by: a unit ends where an operation needs others and not it, but for what is
/// recomputed, whose backward follows.
void ModuleUnits::touch(const std::vector<size_t>& flats) {
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
    if (!contains(before, index) || !units_[index].is_unsharded()) begin_call(index);
  }
}

/// After a forward: not if its backward comes next.
bool ModuleUnits::reshards_after(const ModuleUnit& unit) const {
  return rules_.reshards_after_forward && !unit.stays_whole && !in_recomputation();
}

void ModuleUnits::leave(size_t index, const std::vector<at::Tensor>& outputs) {
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

void ModuleUnits::watch(size_t index, int64_t entered, const std::vector<at::Tensor>& outputs) {
  const auto pass =
      std::make_shared<UnitPass>(UnitPass{index, entered, ++clock_, current_recomputation()});
  for (const at::Tensor& output : outputs) {
    if (!output.defined() || output.grad_fn() == nullptr) continue;
    auto hook = std::make_unique<BeforeBackward>();
    hook->model = model_;
    hook->pass = pass;
    output.grad_fn()->add_pre_hook(std::move(hook));
  }
}

std::string ModuleUnits::to_string(const ModuleUnit& unit) {
  const std::string name = unit.is_root ? "the root unit" : "unit " + unit.name;
  if (unit.flats.empty()) return name;
  return name + ", which holds parameter " + unit.flats[0]->part().parameters[0].name;
}

void ModuleUnits::check_unspent(const UnitPass& pass) const {
  if (!pass.spent) return;
  throw Error(base::invalid_argument("backward() ran twice on one forward() of " +
                                     to_string(units_[pass.unit]) +
                                     "; call forward() again, or keep the graph by retain_graph"));
}

void ModuleUnits::before_backward(const std::shared_ptr<UnitPass>& pass) {
  ModuleUnit& unit = units_[pass->unit];
  reshard_done(*pass);
  if (unit.holds_frozen() && !unit.stays_whole) unit.begun = pass;
  unshard(unit);
  prefetch(pass->unit, -1);
  spent_.push_back(pass);
}

/// No gradient tells when frozen parameters have been read for the last time. But autograd runs what
/// was computed last first, so when a call's backward begins that of all later calls is over, as it
/// is of all calls that recomputed a part whose backward is over by now.
void ModuleUnits::reshard_done(const UnitPass& next) {
  if (!rules_.reshards || units_[next.unit].stays_whole) return;
  for (size_t i = 0; i < units_.size(); ++i) {
    ModuleUnit& unit = units_[i];
    if (unit.begun == nullptr || i == next.unit) continue;
    const UnitPass& last = *unit.begun;
    const bool is_later = last.recomputed == next.recomputed && last.entered > next.left;
    if (!is_later && (last.recomputed == nullptr || *last.recomputed)) continue;
    unit.begun.reset();
    // Else its other calls would gather it once more.
    if (rules_.reshards_after_forward || std::ranges::count(called_, i) <= 1) {
      reshard_after_forward(unit);
    }
  }
}

/// The unit that was called after (or before) this one; where it was called often, the last time.
std::optional<size_t> ModuleUnits::neighbour(size_t unit, int direction) const {
  const std::vector<size_t>& order = order_.empty() || direction < 0 ? called_ : order_;
  for (size_t i = order.size(); i-- > 0;) {
    if (order[i] != unit) continue;
    if (direction < 0 && i > 0) return order[i - 1];
    if (direction > 0 && i + 1 < order.size()) return order[i + 1];
    break;
  }
  return std::nullopt;
}

size_t ModuleUnits::num_whole() const {
  return std::ranges::count_if(units_, [](const ModuleUnit& unit) {
    return !unit.stays_whole && unit.flats[0]->memory().whole().defined();
  });
}

/// The neighbour is gathered as far as the limit allows; the shard of the one to be gathered after
/// it is read meanwhile.
void ModuleUnits::prefetch(size_t unit, int direction) {
  const auto& flats = units_[unit].flats;
  if (pinned_ || !rules_.prefetches) return;
  if (!flats.empty() && !flats[0]->memory().is_gathered()) return;
  auto next = neighbour(unit, direction);
  if (!next || units_[*next].stays_whole) return;
  if (num_whole() < static_cast<size_t>(rules_.max_in_flight)) {
    under_rule(rules_.order, [&] {
      for (FlatUnit* flat : units_[*next].flats) flat->memory().begin_unshard();
    });
    next = neighbour(*next, direction);
  }
  if (!next) return;
  for (FlatUnit* flat : units_[*next].flats) flat->memory().read_ahead();
}

void ModuleUnits::read_ahead() const {
  constexpr size_t kAhead = 2;
  for (size_t i = 0; i < std::min(order_.size(), kAhead); ++i) {
    for (const FlatUnit* flat : units_[order_[i]].flats) flat->memory().read_ahead();
  }
}

void ModuleUnits::on_gradients_of(const FlatUnit& flat) {
  if (!rules_.reshards) return;
  const auto owner = std::ranges::find_if(units_, [&](const ModuleUnit& unit) {
    return std::ranges::find(unit.flats, &flat) != unit.flats.end();
  });
  if (++owner->num_done == owner->num_learning && !owner->holds_frozen()) reshard(*owner);
}

void ModuleUnits::on_end_of_backward(bool ends_batch, bool keeps_graph) {
  if (!called_.empty()) order_ = std::exchange(called_, {});
  for (ModuleUnit& unit : units_) {
    unit.num_done = 0;
    unit.begun.reset();
  }
  if (!rules_.holds_batch || ends_batch) reshard_all();
  for (const auto& pass : spent_) pass->spent = !keeps_graph;
  spent_.clear();
}

void ModuleUnits::unshard(ModuleUnit& unit) {
  if (pinned_) return;
  under_rule(rules_.order, [&] {
    for (FlatUnit* flat : unit.flats) flat->memory().begin_unshard();
    for (FlatUnit* flat : unit.flats) flat->unshard();
  });
}

/// Ranks that own different numbers of grains gather alike if each does so once for all its grains.
void ModuleUnits::reshard(ModuleUnit& unit) {
  if (pinned_ || rules_.holds_batch || unit.holds > 0) return;
  under_rule(rules_.order, [&] {  // what was gathered ahead is waited for
    for (FlatUnit* flat : unit.flats) flat->reshard();
  });
}

void ModuleUnits::reshard_after_forward(ModuleUnit& unit) {
  if (pinned_ || rules_.holds_batch || unit.holds > 0) return;
  for (FlatUnit* flat : unit.flats) flat->reshard_after_forward();
}

void ModuleUnits::reshard_all() {
  if (!rules_.reshards || pinned_) return;
  touched_.clear();
  for (ModuleUnit& unit : units_) {
    if (unit.holds > 0) continue;
    for (FlatUnit* flat : unit.flats) flat->reshard();
  }
}

}  // namespace hanji::parallel
