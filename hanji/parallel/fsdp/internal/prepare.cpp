#include "hanji/parallel/fsdp/internal/prepare.h"

#include <torch/nn/module.h>

#include <algorithm>

#include "hanji/base/status.h"
#include "hanji/comm/shared_tensor.h"
#include "hanji/layout/split.h"
#include "hanji/parallel/agreement.h"
#include "hanji/schedule/grain_tree.h"

namespace hanji::parallel {
namespace {

std::vector<NamedParameter> all_parameters(const torch::nn::Module& module) {
  std::vector<NamedParameter> found;
  for (const auto& item : module.named_parameters()) {
    const bool seen = std::ranges::any_of(
        found, [&](const NamedParameter& entry) { return entry.tensor.is_same(item.value()); });
    if (item.value().defined() && !seen) found.push_back({item.key(), item.value()});
  }
  return found;
}

[[noreturn]] void refuse(const std::string& caller, const std::string& why) {
  throw Error(base::invalid_argument(caller + ": " + why));
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
              held.model->caller() +
              "() was given; shard the outermost module once, and choose its units by the options");
    } else {
      mistakes.add_if_taken(entry, caller);
    }
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

}  // namespace

std::vector<NamedParameter> prepare(const torch::nn::Module& module, const comm::Group& group,
                                    const ShardingOptions& options, const std::string& caller) {
  auto parameters = all_parameters(module);
  const auto buffers = buffers_of(module);
  const auto tensors = with_buffers(parameters, buffers);
  const auto mistakes = mistakes_of(parameters, caller);
  if (options.replicas) check_same_structure(tensors, *options.replicas, mistakes);
  check_same_structure(tensors, group, mistakes);
  const std::array<const comm::Group*, 2> ways = {options.replicas ? &*options.replicas : nullptr,
                                                  &group};
  for (const comm::Group* way : ways) {
    if (way == nullptr) continue;
    broadcast_from_first(parameters, *way);
    broadcast_from_first(buffers, *way);
  }
  return parameters;
}

ShardingOptions resolve(ShardingOptions options, const comm::Group& group,
                        const std::vector<NamedParameter>& parameters, const std::string& caller) {
  if (options.max_units_in_flight < 1) {
    refuse(caller, "max_units_in_flight is " + std::to_string(options.max_units_in_flight) +
                       "; one unit at least must be whole to compute");
  }
  if (options.num_grains == 0 && options.owners.empty()) return options;
  if (options.replicas && !options.everyone) {
    refuse(caller, "grains over replicas need `everyone`, the group of all ranks");
  }
  const comm::Group& everyone = options.everyone ? *options.everyone : group;
  if (options.owners.empty()) {
    options.owners = layout::split_grains(options.num_grains, everyone.size()).or_throw();
  }
  base::throw_if_error(schedule::check_owners(options.num_grains, options.owners));
  if (static_cast<int>(options.owners.size()) != everyone.size()) {
    refuse(caller, "owners names " + std::to_string(options.owners.size()) + " ranks, group " +
                       everyone.name() + " has " + std::to_string(everyone.size()));
  }
  if (options.average == Average::kWeighted) {
    throw Error(base::unsupported(caller +
                                  ": Average::kWeighted scales before the sum, which stable bits "
                                  "forbid; weigh the loss of each grain and use Average::kSum"));
  }
  for (const auto& [name, tensor] : parameters) {
    if (!tensor.requires_grad() || tensor.element_size() >= 4) continue;
    throw Error(base::unsupported(caller + ": gradients of " + name + " are " +
                                  c10::toString(tensor.scalar_type()) +
                                  ", which round differently within a rank and between ranks; keep "
                                  "parameters in float32"));
  }
  return options;
}

bool shares_parameters(const comm::Group& group, const ShardingOptions& options,
                       const std::vector<NamedParameter>& parameters) {
  return options.share_memory && comm::shares_memory(group) &&
         parameters[0].tensor.device().is_cpu();
}

}  // namespace hanji::parallel
