#include "hanji/parallel/fsdp/internal/prepare.h"

#include <fmt/format.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <utility>

#include "hanji/base/status.h"
#include "hanji/comm/shared_tensor.h"
#include "hanji/parallel/agreement.h"
#include "hanji/parallel/without_memory.h"

namespace hanji::parallel {
namespace {

/// Of a module that hanji::deferred() built, a tensor whose values cannot be had piece by piece.
void add_if_unknown(const NamedParameter& entry, const lens::InitialValues& initial,
                    const std::string& caller, Mistakes& mistakes) {
  const auto add = [&](const std::string& kind, const std::string& why) {
    mistakes.add(kind, entry.name, base::invalid_argument(caller + ": " + entry.name + " " + why));
  };
  if (!entry.tensor.is_meta()) {
    return add("filled",
               "has memory, but the module is given as one that hanji::deferred() built; build it "
               "there too, or give the module alone, once all of it has memory");
  }
  const int index = initial.find(entry.tensor);
  if (index < 0) {
    return add("foreign",
               "was not there when hanji::deferred() ended; register it in the function that "
               "deferred() calls");
  }
  const std::string refused = initial.refused(index);
  if (refused.empty()) return;
  add("refused", "cannot get its initial values piece by piece, for " + refused +
                     " cannot be repeated; build that part otherwise");
}

/// Names that also tell where initial values come from, for ranks to compare.
std::vector<NamedParameter> with_origins(std::vector<NamedParameter> tensors,
                                         const lens::InitialValues& initial) {
  for (auto& [name, tensor] : tensors) {
    const int index = initial.find(tensor);
    if (index < 0) continue;
    name += fmt::format(" (deferred, seed {}, construction {:x})", initial.seed(),
                        initial.fingerprint(index));
  }
  return tensors;
}

Mistakes mistakes_of(const std::vector<NamedParameter>& parameters, const std::string& caller) {
  Mistakes mistakes;
  const auto add = [&](const std::string& kind, const std::string& name, const std::string& why) {
    mistakes.add(kind, name, base::invalid_argument(caller + ": " + why));
  };
  const auto learns = [](const NamedParameter& entry) { return entry.tensor.requires_grad(); };
  if (std::ranges::none_of(parameters, learns)) {
    add("none", "", "no parameter of the module requires a gradient; there is nothing to shard");
  }
  for (const NamedParameter& entry : parameters) {
    const auto& [name, tensor] = entry;
    if (const Held held = holder_of(tensor); held.model != nullptr) {
      add("sharded", name,
          "parameter " + name + " is sharded already, as part of a module that " +
              held.model->spec().caller +
              "() was given; shard the outermost module once, and choose its units by the options");
    } else {
      mistakes.add_if_taken(entry, caller);
    }
    mistakes.add_if_no_sum(entry, caller);
    if (tensor.device() != parameters[0].tensor.device()) {
      add("device", name,
          "parameter " + name + " is on " + tensor.device().str() + " but " + parameters[0].name +
              " is on " + parameters[0].tensor.device().str() +
              "; move the module to one device first");
    }
    if (!tensor.is_leaf()) {
      add("graph", name,
          "parameter " + name + " is part of an autograd graph; shard before forward()");
    }
  }
  return mistakes;
}

/// Freed, such as those of other stages of a pipeline.
bool is_elsewhere(const NamedParameter& entry) {
  return !entry.tensor.requires_grad() && is_without_memory(entry.tensor) &&
         holder_of(entry.tensor).model == nullptr;
}

}  // namespace

std::vector<NamedParameter> prepare(const torch::nn::Module& module, const comm::Group& group,
                                    const ShardingOptions& options, const std::string& caller) {
  auto parameters = distinct_parameters(module);
  std::erase_if(parameters, is_elsewhere);
  const auto buffers = buffers_of(module);
  auto tensors = with_buffers(parameters, buffers);
  auto mistakes = mistakes_of(parameters, caller);
  for (const NamedParameter& entry : buffers) mistakes.add_if_learning(entry, caller);
  for (const auto& entry : tensors) {
    if (options.initial) {
      add_if_unknown(entry, *options.initial, caller, mistakes);
    } else {
      mistakes.add_if_without_memory(entry, caller);
    }
  }
  if (options.initial) tensors = with_origins(std::move(tensors), *options.initial);
  if (options.replicas) check_same_structure(tensors, *options.replicas, mistakes);
  check_same_structure(tensors, group, mistakes);
  if (options.initial) return parameters;  // equal by construction
  const std::array<const comm::Group*, 2> ways = {options.replicas ? &*options.replicas : nullptr,
                                                  &group};
  for (const comm::Group* way : ways) {
    if (way == nullptr) continue;
    broadcast_from_first(parameters, *way);
    broadcast_from_first(buffers, *way);
  }
  return parameters;
}

std::vector<int> indices_of(const std::vector<at::Tensor>& some,
                            const std::vector<NamedParameter>& parameters) {
  std::vector<int> found;
  for (size_t i = 0; i < parameters.size(); ++i) {
    const bool is_one = std::ranges::any_of(
        some, [&](const at::Tensor& one) { return one.is_same(parameters[i].tensor); });
    if (is_one) found.push_back(static_cast<int>(i));
  }
  return found;
}

void take_options(const ShardingOptions& options, ShardedModel::Spec& spec) {
  spec.initial = options.initial;
  spec.device = options.initial ? options.device : spec.parameters[0].tensor.device();
  spec.gradients.replicas = options.replicas;
  spec.gradients.everyone = options.everyone;
}

bool shares_parameters(const ShardedModel::Spec& spec, const ShardingOptions& options) {
  return options.share_memory && comm::shares_memory(spec.gradients.group) && spec.device.is_cpu();
}

}  // namespace hanji::parallel
