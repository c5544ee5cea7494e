#include "hanji/parallel/fsdp/sharded.h"

#include <ATen/core/grad_mode.h>
#include <torch/optim/optimizer.h>

#include <exception>
#include <map>

#include "hanji/base/status.h"
#include "hanji/parallel/flat_parameters.h"
#include "hanji/parallel/fsdp/internal/norm.h"
#include "hanji/parallel/fsdp/internal/sharded_model.h"

namespace hanji::parallel {
namespace {

/// What `of_unit` gives for each parameter of a unit, in order of registration.
std::vector<at::Tensor> by_registration(
    const ShardedModel& model, const std::function<std::vector<at::Tensor>(size_t)>& of_unit) {
  std::map<int, at::Tensor> found;
  for (size_t u = 0; u < model.learning().size(); ++u) {
    const std::vector<at::Tensor> tensors = of_unit(u);
    for (size_t i = 0; i < tensors.size(); ++i) {
      found[model.learning()[u]->part().plan.parameters[i]] = tensors[i];
    }
  }
  std::vector<at::Tensor> ordered;
  for (auto& [index, tensor] : found) ordered.push_back(tensor);
  return ordered;
}

}  // namespace

Sharded::Sharded(std::shared_ptr<ShardedModel> model) : model_(std::move(model)) {}
Sharded::Sharded(Sharded&&) noexcept = default;
Sharded& Sharded::operator=(Sharded&&) noexcept = default;
Sharded::~Sharded() = default;

ShardedModel& model_of(const Sharded& sharded) { return *sharded.model_; }

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

void Sharded::unshard(layout::Range layers) { model_->modules().hold(layers); }
void Sharded::reshard(layout::Range layers) { model_->modules().release(layers); }

void Sharded::grain(int64_t index, size_t part) {
  model_->gradients().engine().begin_grain(index, part);
}
layout::Range Sharded::grains() const { return grains_of(model_->gradients().engine().fold()); }
void Sharded::finish() { model_->gradients().engine().finish(); }
void Sharded::set_weight(double weight) { model_->gradients().engine().set_weight(weight); }

void Sharded::zero_grad() { model_->gradients().forget(); }

void Sharded::for_each_gradient(const std::function<void(const at::Tensor&)>& visit) {
  const at::NoGradGuard no_grad;
  model_->gradients().for_each_unit(/*changes=*/true, [&](const FlatUnit& unit) {
    for (const Leaf& leaf : unit.leaves()) {
      if (leaf.tensor.grad().defined()) visit(leaf.tensor.grad());
    }
  });
}

std::vector<FlatPart> Sharded::flat_parts(const GroupRule& rule) const {
  const ShardGradients& gradients = model_->gradients();
  if (gradients.flat().size() > 1) {
    throw Error(base::unsupported("flat_parts: the parameters have " +
                                  std::to_string(gradients.flat().size()) +
                                  " dtypes; give parameters() to an optimizer of torch"));
  }
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

std::vector<at::Tensor> Sharded::gradient_slots() const {
  return by_registration(*model_, [&](size_t u) { return model_->gradients().slots(u); });
}

std::vector<at::Tensor> Sharded::whole_sums() const {
  if (model_->gradients().engine().fold() == nullptr) return {};
  return by_registration(*model_, [&](size_t u) {
    const UnitPart& part = model_->learning()[u]->part();
    const at::Tensor sum = model_->gradients().sum(u);
    std::vector<at::Tensor> sums;
    for (size_t i = 0; i < part.parameters.size(); ++i) {
      sums.push_back(alias(sum, part.plan.flat.offsets[i], part.parameters[i].tensor.sizes()));
    }
    return sums;
  });
}

}  // namespace hanji::parallel
