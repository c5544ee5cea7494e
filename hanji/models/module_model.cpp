#include "hanji/models/module_model.h"

#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <fmt/format.h>

#include <algorithm>
#include <mutex>
#include <utility>

#include "hanji/base/random.h"
#include "hanji/base/status.h"
#include "hanji/models/internal/numbers.h"

namespace hanji::models {
namespace {

/// What torch draws in a layer follows from what the layer computes, in a repetition too.
void seed_generator(const layers::Batch& batch, int64_t layer) {
  if (batch.inputs.is_meta()) return;  // nothing is drawn
  uint64_t key = batch.counters.seed;
  for (const int64_t part : {batch.counters.step, batch.positions.begin, layer}) {
    key = base::mix(key, static_cast<uint64_t>(part));
  }
  at::Generator generator = at::globalContext().defaultGenerator(batch.inputs.device());
  const std::lock_guard lock(generator.mutex());
  generator.set_current_seed(key);
}

/// Graphs may have kept the tensor, and count what is written to it by the usual way.
void write(const at::Tensor& to, const at::Tensor& values) { to.variable_data().copy_(values); }

void cast(const at::Tensor& tensor, at::ScalarType dtype) {
  if (tensor.is_floating_point()) tensor.set_data(tensor.detach().to(dtype));
}

}  // namespace

ModuleModel::ModuleModel(LayeredModule module, ModuleLoss loss, at::ScalarType dtype,
                         const layers::Batch& probe)
    : Model(module.root->name()),
      root_(std::move(module.root)),
      layers_(std::move(module.layers)),
      loss_(std::move(loss)),
      dtype_(dtype) {
  if (layers_.empty()) {
    throw Error(base::invalid_argument(name() + ": it has no layers; add a module to it"));
  }
  take_over_names();
  for (const auto& item : named_parameters()) {
    if (!item.value().requires_grad()) {
      throw Error(base::unsupported(fmt::format(
          "{}: parameter '{}' requires no gradient, but all parameters are trained; make it a "
          "buffer by register_buffer()",
          name(), item.key())));
    }
    cast(item.value(), dtype);
  }
  find_moving_buffers(probe);
}

/// As a child the module would put a word of ours before each of its names.
void ModuleModel::take_over_names() {
  for (const auto& item : root_->named_parameters(/*recurse=*/false)) {
    register_parameter(item.key(), item.value(), item.value().requires_grad());
  }
  for (const auto& item : root_->named_buffers(/*recurse=*/false)) {
    register_buffer(item.key(), item.value());
  }
  for (const auto& item : root_->named_children()) register_module(item.key(), item.value());
}

void ModuleModel::find_moving_buffers(const layers::Batch& probe) {
  const at::NoGradGuard no_grad;
  for (const auto& item : named_buffers()) {
    if (item.value().defined()) cast(item.value(), dtype_);
  }
  for (int64_t layer = 0; layer < num_layers(); ++layer) {
    for (const at::Tensor& one : layers_[static_cast<size_t>(layer)].module->buffers()) {
      if (one.defined()) moving_.push_back({.name = {}, .tensor = one, .layer = layer});
    }
  }
  for (Buffer& one : moving_) {
    for (const auto& item : named_buffers()) {
      if (item.value().is_same(one.tensor)) one.name = item.key();
    }
  }
  train();
  forward({0, num_layers()}, {}, probe);
  if (probe.inputs.is_meta()) return;
  std::erase_if(moving_, [](const Buffer& one) { return at::equal(one.seen, one.tensor); });
  for (const Buffer& one : moving_) {
    const auto again = std::ranges::find_if(moving_, [&](const Buffer& other) {
      return other.layer > one.layer && other.tensor.is_same(one.tensor);
    });
    if (again == moving_.end()) continue;
    throw Error(base::unsupported(
        fmt::format("{}: buffer '{}' moves in layers {} and {}, but a step moves each once; give "
                    "every layer a module of its own",
                    name(), one.name, one.layer, again->layer)));
  }
}

layers::Flow ModuleModel::layer(int64_t index, layers::Flow flow, const layers::Batch& batch) {
  at::Tensor input = index == 0 ? batch.inputs : std::move(flow.at(0));
  if (index == 0 && input.is_floating_point()) input = input.to(dtype_);
  const auto& run = layers_[static_cast<size_t>(index)].forward;
  if (!is_training()) return {run(std::move(input))};
  seed_generator(batch, index);
  std::vector<std::pair<Buffer*, at::Tensor>> before;
  for (Buffer& one : moving_) {
    if (one.layer == index) before.emplace_back(&one, one.tensor.detach().clone());
  }
  at::Tensor output = run(std::move(input));
  for (auto& [buffer, values] : before) {
    if (buffer->seen.defined()) {
      buffer->seen.copy_(buffer->tensor.detach());
    } else {
      buffer->seen = buffer->tensor.detach().clone();
    }
    write(buffer->tensor, values);
  }
  return {std::move(output)};
}

std::vector<at::Tensor> ModuleModel::layer_parameters(int64_t index) const {
  return layers_[static_cast<size_t>(index)].module->parameters();
}

layers::LossSum ModuleModel::loss(layers::Flow flow, const layers::Batch& batch) {
  layers::LossSum loss = loss_(flow.at(0), batch.targets);
  if (loss.sum.defined() && loss.sum.numel() == 1 && loss.count >= 0) return loss;
  throw Error(base::invalid_argument(fmt::format(
      "{}: the loss is a tensor of {} numbers, counted {}; return the sum of the losses, one "
      "number, and how many they are",
      name(), loss.sum.defined() ? loss.sum.numel() : 0, loss.count)));
}

int64_t ModuleModel::num_statistics(layout::Range layers) const {
  int64_t count = 0;
  for (const Buffer& one : moving_) {
    if (layers.begin <= one.layer && one.layer < layers.end) count += one.tensor.numel();
  }
  return count;
}

std::vector<double> ModuleModel::statistics(layout::Range layers) const {
  std::vector<at::Tensor> all;
  for (const Buffer& one : moving_) {
    if (layers.begin <= one.layer && one.layer < layers.end) all.push_back(one.seen);
  }
  return internal::numbers_of(all);
}

void ModuleModel::update_statistics(std::span<const double> mean) {
  const at::NoGradGuard no_grad;
  if (moving_.empty()) return;
  const at::Tensor all = internal::numbers_on(moving_.front().tensor.device(), mean);
  int64_t next = 0;
  for (const Buffer& one : moving_) {
    at::Tensor values = all.narrow(0, next, one.tensor.numel()).view_as(one.tensor);
    next += values.numel();
    if (!one.tensor.is_floating_point()) values.round_();
    write(one.tensor, values);
  }
}

void ModuleModel::train(bool on) {
  Model::train(on);
  root_->train(on);
}

}  // namespace hanji::models
