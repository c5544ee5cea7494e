#include "hanji/train/replicated_strategy.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <utility>

#include "hanji/comm/host_values.h"
#include "hanji/layers/model.h"
#include "hanji/layout/shard.h"
#include "hanji/parallel/flat_parameters.h"
#include "hanji/parallel/grad_norm.h"
#include "hanji/train/optimizer.h"

namespace hanji::train {
namespace {

constexpr int64_t kRoundedElements = 16;  // that an update has at once

/// Parameters and gradients of the whole model, which are moved to flat buffers.
parallel::FlatPart make_part(parallel::Replicas& replicas, const comm::Group& group,
                             const parallel::GroupRule& rule) {
  const std::vector<parallel::NamedParameter>& parameters = replicas.parameters();
  const layout::FlatLayout& flat = replicas.buckets().flat;
  const at::Tensor values = comm::zeros_on(comm::device_of(group), {flat.count},
                                           parameters[0].tensor.scalar_type(), group, "parameters");
  return parallel::whole_part(parameters, flat, values, replicas.flat_gradients(), rule);
}

std::unique_ptr<parallel::FlatOptimizer> make_optimizer(parallel::Replicas& replicas,
                                                        const comm::Group& group,
                                                        const ReplicatedOptions& options) {
  parallel::FlatPart part = make_part(replicas, group, options.rule);
  if (!options.offload) return options.make_optimizer(std::move(part), {});
  return parallel::offloaded(options.make_optimizer, *options.offload, {std::move(part)});
}

layout::FlatLayout counted_parameters(const layers::Model& model,
                                      const parallel::Replicas& replicas,
                                      const ReplicatedOptions& options) {
  const layout::FlatLayout& all = replicas.buckets().flat;
  const layout::Cut cut = model.cut();
  layout::FlatLayout counted;
  counted.count = all.count;
  for (size_t i = 0; i < all.sizes.size(); ++i) {
    const auto& [name, tensor] = replicas.parameters()[i];
    if (!is_counted(cut, name) || (options.counts && !options.counts(tensor))) continue;
    counted.offsets.push_back(all.offsets[i]);
    counted.sizes.push_back(all.sizes[i]);
  }
  return counted;
}

}  // namespace

ReplicatedStrategy::ReplicatedStrategy(layers::Model& model, const comm::Group& group,
                                       const ReplicatedOptions& options)
    : group_(group),
      replicas_(parallel::data_parallel(model, group, options.reduction)),
      in_stages_(!options.reduction.parts.empty() && options.reduction.num_grains > 0),
      slots_(model, replicas_.parameters()),
      optimizer_(make_optimizer(replicas_, group, options)),
      counted_(counted_parameters(model, replicas_, options)) {
  if (options.rounds && optimizer_->rounds()) rounded_ = slots_.rounded();
  set_slots();
}

void ReplicatedStrategy::begin_step() {
  for (const auto& parameter : parameters()) parameter.tensor.mutable_grad().reset();
}

void ReplicatedStrategy::begin_grain(int64_t index, size_t stage) {
  replicas_.grain(index, stage);
  set_slots();
}

void ReplicatedStrategy::add_gradient(size_t parameter, const at::Tensor& more) {
  gradients()[parameter].add_(more);
}

/// A stage's forward comes before it is known where its backward may write.
void ReplicatedStrategy::set_slots() {
  if (!in_stages_) slots_.set(replicas_.gradient_slots());
}

void ReplicatedStrategy::accumulate(const std::function<void()>& backward) {
  const auto only_accumulate = replicas_.accumulate();
  backward();
}

double ReplicatedStrategy::gradient_norm() {
  return parallel::grad_norm(replicas_.flat_gradients(), counted_);
}

void ReplicatedStrategy::update(double learning_rate, double gradient_divisor) {
  std::vector<at::Tensor> rounded;
  for (size_t i = 0; i < rounded_.size(); ++i) {
    const int64_t elements = layout::round_up(parameters()[i].tensor.numel(), kRoundedElements);
    rounded.push_back(rounded_[i] ? at::empty({elements}, at::kBFloat16) : at::Tensor());
  }
  optimizer_->round_into(rounded);
  optimizer_->step(learning_rate, gradient_divisor);
  offer_rounded(std::move(rounded));
}

void ReplicatedStrategy::offer_rounded(std::vector<at::Tensor> rounded) {
  rounded_bytes_ = 0;
  for (size_t i = 0; i < rounded.size(); ++i) {
    if (!rounded[i].defined()) continue;
    const at::Tensor& parameter = parameters()[i].tensor;
    rounded_bytes_ += static_cast<int64_t>(rounded[i].nbytes());
    rounded[i] = rounded[i].slice(0, 0, parameter.numel()).view(parameter.sizes());
  }
  if (rounded_bytes_ > 0) slots_.set_rounded(rounded);
}

void ReplicatedStrategy::forget_rounded() const {
  if (std::exchange(rounded_bytes_, 0) > 0) slots_.set_rounded({});
}

FlatState ReplicatedStrategy::state() const {
  forget_rounded();
  return {.layout = replicas_.buckets().flat,
          .parameters = parameters(),
          .gradients = {},
          .moments = moments_of(*optimizer_),
          .num_updates = optimizer_->num_updates()};
}

std::vector<at::Tensor> ReplicatedStrategy::gradients() {
  return by_parameter(replicas_.flat_gradients(), replicas_.buckets().flat, parameters());
}

OwnState ReplicatedStrategy::own_state() const {
  const std::vector<layout::Range> all = {{0, replicas_.buckets().flat.count}};
  return {all, all, group_.rank() == 0 ? std::optional(0) : std::nullopt};
}

int64_t ReplicatedStrategy::window_bytes() const {
  const auto* in_file = dynamic_cast<const parallel::OffloadedOptimizer*>(optimizer_.get());
  return in_file == nullptr ? 0 : in_file->window_bytes();
}

std::vector<plan::MemoryLine> ReplicatedStrategy::private_memory() const {
  if (window_bytes() > 0) return {{"optimizer", window_bytes()}};
  const int64_t moments = optimizer_->state_bytes();
  std::vector<plan::MemoryLine> lines = {{"optimizer", moments}};
  if (comm::device_of(group_).is_cpu()) return lines;
  lines.push_back({"parameters", moments / 2});  // else they lie in the heap
  lines.push_back({"gradients", moments / 2});
  return lines;
}

}  // namespace hanji::train
