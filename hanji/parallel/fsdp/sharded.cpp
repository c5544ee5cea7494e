#include "hanji/parallel/fsdp/sharded.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/optim/optimizer.h>

#include <algorithm>
#include <exception>
#include <map>

#include "hanji/base/status.h"
#include "hanji/comm/all_gather.h"
#include "hanji/parallel/flat_parameters.h"
#include "hanji/parallel/fsdp/internal/norm.h"
#include "hanji/parallel/fsdp/internal/sharded_model.h"

namespace hanji::parallel {
namespace {

/// Of all units that learn, one value for each leaf of `unit`, from `next` on.
std::vector<at::Tensor> take_leaves(const FlatUnit& unit, const std::vector<at::Tensor>& values,
                                    size_t& next) {
  std::vector<at::Tensor> own;
  for (const Leaf& leaf : unit.leaves()) {
    if (next >= values.size() || values[next].numel() != leaf.elements.size()) {
      throw Error(base::invalid_argument("gather: value " + std::to_string(next) +
                                         " must have the " + std::to_string(leaf.elements.size()) +
                                         " elements of this rank's shard of " +
                                         unit.part().parameters[leaf.position].name +
                                         "; give one value per tensor of parameters()"));
    }
    own.push_back(values[next++]);
  }
  return own;
}

/// One value per leaf, shaped like it, of all ranks together: by position, shaped like the parameters.
std::vector<at::Tensor> gather_unit(const FlatUnit& unit, const std::vector<at::Tensor>& by_leaf) {
  const at::NoGradGuard no_grad;
  const UnitPart& part = unit.part();
  const at::Tensor mine =
      at::zeros({part.range().size()}, at::TensorOptions(part.dtypes.shard).device(part.device));
  for (size_t i = 0; i < by_leaf.size(); ++i) {
    const Leaf& leaf = unit.leaves()[i];
    mine.narrow(0, leaf.offset, leaf.elements.size()).copy_(by_leaf[i].reshape({-1}));
  }
  at::Tensor all = at::empty({part.plan.flat.count}, mine.options());
  comm::all_gather(all, mine, layout::shard_counts(part.plan), part.group, {.label = part.name})
      .wait();
  std::vector<at::Tensor> whole;
  for (size_t i = 0; i < part.parameters.size(); ++i) {
    whole.push_back(
        alias(all, part.plan.flat.offsets[i], part.parameters[i].tensor.sizes()).clone());
  }
  return whole;
}

}  // namespace

Sharded::Sharded(std::shared_ptr<ShardedModel> model) : model_(std::move(model)) {}
Sharded::Sharded(Sharded&&) noexcept = default;
Sharded& Sharded::operator=(Sharded&&) noexcept = default;
Sharded::~Sharded() = default;

std::vector<at::Tensor> Sharded::parameters() const {
  model_->check_in_memory("parameters", true, true);
  std::vector<at::Tensor> tensors;
  for (const FlatUnit* unit : model_->learning()) {
    for (const Leaf& leaf : unit->leaves()) tensors.push_back(leaf.tensor);
  }
  return tensors;
}

std::vector<Shard> Sharded::shards() const {
  model_->check_in_memory("shards", true, false);
  std::vector<Shard> shards;
  for (const auto& unit : model_->units()) {
    for (const Leaf& leaf : unit->leaves()) {
      const NamedParameter& parameter = unit->part().parameters[leaf.position];
      shards.push_back(
          {parameter.name, leaf.tensor, leaf.elements, parameter.tensor.sizes().vec()});
    }
  }
  return shards;
}

void Sharded::step(torch::optim::Optimizer& optimizer) {
  for (const auto& group : optimizer.param_groups()) {
    for (const at::Tensor& tensor : group.params()) {
      const std::string why = model_->why_foreign(tensor);
      if (why.empty()) continue;
      throw Error(base::invalid_argument(
          "step: the optimizer holds " + why +
          ", so it was made before sharding; make it from the handle's parameters()"));
    }
  }
  model_->step([&] { optimizer.step(); });
}

void Sharded::step(const std::function<void()>& update) { model_->step(update); }

double Sharded::clip_grad_norm(double max_norm) {
  return parallel::clip_grad_norm(model_->gradients(), model_->learning(), model_->group(),
                                  max_norm);
}

Sharded::Accumulation::Accumulation(ShardedModel& model) : model_(model) {
  model_.gradients().engine().set_accumulating(true);
}
Sharded::Accumulation::~Accumulation() { model_.gradients().engine().set_accumulating(false); }
Sharded::Accumulation Sharded::accumulate() { return Accumulation(*model_); }

Sharded::FullParameters::FullParameters(std::shared_ptr<ShardedModel> model)
    : model_(std::move(model)), exceptions_(std::uncaught_exceptions()) {
  model_->begin_full_parameters();
}

/// While an exception ends the scope, the others cannot be met.
Sharded::FullParameters::~FullParameters() noexcept(false) {
  if (std::uncaught_exceptions() == exceptions_) model_->end_full_parameters();
}
Sharded::FullParameters Sharded::full_parameters() { return FullParameters(model_); }

std::vector<NamedParameter> Sharded::gather(const std::vector<at::Tensor>& of_shards) const {
  std::vector<NamedParameter> whole;
  size_t next = 0;
  for (const FlatUnit* unit : model_->learning()) {
    const auto tensors = gather_unit(*unit, take_leaves(*unit, of_shards, next));
    for (size_t i = 0; i < tensors.size(); ++i) {
      whole.push_back({unit->part().parameters[i].name, tensors[i]});
    }
  }
  return whole;
}

std::vector<at::Tensor> Sharded::scatter(const std::vector<NamedParameter>& whole) const {
  std::vector<at::Tensor> pieces;
  for (const FlatUnit* unit : model_->learning()) {
    for (const Leaf& leaf : unit->leaves()) {
      const NamedParameter& parameter = unit->part().parameters[leaf.position];
      const auto found = std::ranges::find(whole, parameter.name, &NamedParameter::name);
      if (found == whole.end() || found->tensor.sizes() != parameter.tensor.sizes()) {
        throw Error(base::mismatch(fmt::format(
            "scatter: parameter {} is [{}]; the whole tensors have {}", parameter.name,
            fmt::join(parameter.tensor.sizes(), ", "),
            found == whole.end() ? "none of that name"
                                 : fmt::format("[{}]", fmt::join(found->tensor.sizes(), ", ")))));
      }
      pieces.push_back(piece_of(found->tensor, leaf));
    }
  }
  return pieces;
}

void Sharded::grain(int64_t index) { model_->gradients().engine().begin_grain(index); }
layout::Range Sharded::grains() const { return model_->gradients().engine().grains(); }
void Sharded::finish() { model_->gradients().engine().finish(); }
void Sharded::set_weight(double weight) { model_->gradients().engine().set_weight(weight); }

at::Tensor Sharded::flat_gradients() const {
  model_->check_in_memory("flat_gradients", false, true);
  const auto& flat = model_->gradients().flat();
  if (flat.size() == 1) return flat[0];
  throw Error(base::unsupported("flat_gradients: the parameters have " +
                                std::to_string(flat.size()) +
                                " dtypes; give parameters() to an optimizer of torch"));
}

void Sharded::zero_grad() { model_->gradients().forget(); }

void Sharded::for_each_gradient(const std::function<void(const at::Tensor&)>& visit) {
  const at::NoGradGuard no_grad;
  model_->gradients().for_each_unit(/*changes=*/true, [&](const FlatUnit& unit) {
    for (const Leaf& leaf : unit.leaves()) {
      if (leaf.tensor.grad().defined()) visit(leaf.tensor.grad());
    }
  });
}

layout::FlatLayout Sharded::flat_layout() const {
  flat_gradients();
  layout::FlatLayout flat;
  for (const FlatUnit* unit : model_->learning()) {
    for (const Leaf& leaf : unit->leaves()) {
      flat.offsets.push_back(flat.count + leaf.offset);
      flat.sizes.push_back(leaf.elements.size());
    }
    flat.count += unit->part().range().size();
  }
  return flat;
}

std::vector<FlatPart> Sharded::flat_parts(const GroupRule& rule) const {
  const ShardGradients& gradients = model_->gradients();
  if (gradients.flat().size() > 1) flat_gradients();
  std::vector<FlatPart> parts;
  for (const FlatUnit* unit : model_->learning()) {
    FlatPart part{unit->memory().shard(), gradients.shard(parts.size()), {}};
    part.parameters_in = unit->memory().shard_in_file();
    part.gradients_in = gradients.shard_in_file(parts.size());
    for (const Leaf& leaf : unit->leaves()) {
      const NamedParameter& parameter = unit->part().parameters[leaf.position];
      part.pieces.push_back({parameter.name,
                             parameter.tensor.sizes().vec(),
                             leaf.elements.begin,
                             {leaf.offset, leaf.offset + leaf.elements.size()},
                             rule(parameter)});
    }
    parts.push_back(std::move(part));
  }
  return parts;
}

std::vector<NamedParameter> whole_parameters(const Sharded& sharded) {
  std::vector<NamedParameter> found;
  for (const FlatUnit* unit : sharded.model_->learning()) {
    const UnitPart& part = unit->part();
    if (unit->keeps_apart()) {
      throw Error(base::unsupported("whole_parameters: no rank has unit " + part.name +
                                    " whole between steps; take full_parameters()"));
    }
    for (size_t i = 0; i < part.parameters.size(); ++i) {
      const auto& [name, parameter] = part.parameters[i];
      const at::Tensor& whole = unit->memory().whole();
      found.push_back({name, alias(whole, part.plan.flat.offsets[i], parameter.sizes())});
    }
  }
  return found;
}

std::vector<at::Tensor> Sharded::gradient_slots() const {
  std::map<int, at::Tensor> by_registration;
  const auto& units = model_->learning();
  for (size_t u = 0; u < units.size(); ++u) {
    const auto slots = model_->gradients().slots(u);
    for (size_t i = 0; i < slots.size(); ++i) {
      by_registration[units[u]->part().plan.parameters[i]] = slots[i];
    }
  }
  std::vector<at::Tensor> slots;
  for (auto& [index, slot] : by_registration) slots.push_back(slot);
  return slots;
}

}  // namespace hanji::parallel
