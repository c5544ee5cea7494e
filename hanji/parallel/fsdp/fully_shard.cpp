#include "hanji/parallel/fsdp/fully_shard.h"

#include <fmt/format.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/container/modulelist.h>

#include <algorithm>
#include <array>
#include <utility>

#include "hanji/base/status.h"
#include "hanji/layers/model.h"
#include "hanji/parallel/fsdp/internal/prepare.h"
#include "hanji/parallel/fsdp/internal/resharding.h"
#include "hanji/parallel/fsdp/sequential.h"

namespace hanji::parallel {
namespace {

constexpr std::array<std::pair<std::string_view, ShardingStrategy>, 4> kStrategies = {
    {{"FULL_SHARD", ShardingStrategy::kFullShard},
     {"SHARD_GRAD_OP", ShardingStrategy::kShardGradOp},
     {"NO_SHARD", ShardingStrategy::kNoShard},
     {"HYBRID_SHARD", ShardingStrategy::kHybridShard}}};

const char* const kCaller = "fully_shard";

[[noreturn]] void refuse(const std::string& why) {
  throw Error(base::invalid_argument(std::string(kCaller) + ": " + why));
}

bool is_list(const torch::nn::Module& module, UnitCalls calls) {
  if (calls == UnitCalls::kExplicit) return dynamic_cast<const SequentialImpl*>(&module) != nullptr;
  return dynamic_cast<const torch::nn::SequentialImpl*>(&module) != nullptr ||
         dynamic_cast<const torch::nn::ModuleListImpl*>(&module) != nullptr;
}

void find_in_lists(const torch::nn::Module& module, const std::string& prefix, UnitCalls calls,
                   std::vector<UnitRequest>& found) {
  const bool lists = is_list(module, calls);
  for (const auto& child : module.named_children()) {
    if (lists) found.push_back({prefix + child.key(), {}, child.value().get()});
    find_in_lists(*child.value(), prefix + child.key() + ".", calls, found);
  }
}

/// Units without their parameters, the root first.
std::vector<UnitRequest> find_units(const torch::nn::Module& module,
                                    const FullyShardOptions& options) {
  std::vector<UnitRequest> units = {{.module = &module, .is_root = true}};
  if (options.units) {
    for (const auto& item : module.named_modules("", /*include_self=*/false)) {
      if (!options.units(item.key(), *item.value())) continue;
      units.push_back({item.key(), {}, item.value().get()});
    }
    if (units.size() == 1) refuse("the policy `units` finds no module that is a unit");
    return units;
  }
  find_in_lists(module, "", options.calls, units);
  if (units.size() > 1 || options.calls == UnitCalls::kExplicit) return units;
  for (const auto& child : module.named_children()) {
    units.push_back({child.key(), {}, child.value().get()});
  }
  return units;
}

/// The innermost unit that `name` lies in; 0: the root.
size_t unit_of(const std::string& name, const std::vector<UnitRequest>& units) {
  size_t best = 0;
  for (size_t i = 1; i < units.size(); ++i) {
    if (!name.starts_with(units[i].name + ".")) continue;
    if (best == 0 || units[i].name.size() > units[best].name.size()) best = i;
  }
  return best;
}

/// A parameter under names of several units belongs to the root.
void share_out(const torch::nn::Module& module, const std::vector<NamedParameter>& parameters,
               std::vector<UnitRequest>& units) {
  constexpr size_t kNone = -1;
  std::vector<size_t> owner(parameters.size(), kNone);
  for (const auto& item : module.named_parameters()) {
    const auto found = std::ranges::find_if(parameters, [&](const NamedParameter& entry) {
      return entry.tensor.is_same(item.value());
    });
    if (found == parameters.end()) continue;
    size_t& unit = owner[found - parameters.begin()];
    const size_t named = unit_of(item.key(), units);
    unit = unit == kNone || unit == named ? named : 0;
  }
  for (size_t i = 0; i < owner.size(); ++i) {
    units[owner[i]].parameters.push_back(static_cast<int>(i));
  }
}

/// The model whose layers are the units; null: modules are.
const layers::Model* layered(const torch::nn::Module& module, const FullyShardOptions& options) {
  if (options.calls != UnitCalls::kLayers) return nullptr;
  if (options.units) refuse("UnitCalls::kLayers takes no policy `units`: the units are the layers");
  const auto* model = dynamic_cast<const layers::Model*>(&module);
  if (model == nullptr)
    refuse("UnitCalls::kLayers needs a hanji::layers::Model, whose layers are the units");
  return model;
}

/// The layers that read any of a unit's parameters.
std::vector<int64_t> readers_of(const UnitRequest& unit, const layers::Model& model,
                                const std::vector<NamedParameter>& parameters) {
  std::vector<int64_t> readers;
  for (int64_t layer = 0; layer < model.num_layers(); ++layer) {
    const auto read = model.layer_parameters(layer);
    const bool reads = std::ranges::any_of(unit.parameters, [&](int index) {
      return std::ranges::any_of(
          read, [&](const at::Tensor& one) { return one.is_same(parameters[index].tensor); });
    });
    if (reads) readers.push_back(layer);
  }
  return readers;
}

/// A unit per parameter of `alone`, then one per layer; no root.
std::vector<UnitRequest> units_of_layers(const layers::Model& model,
                                         const std::vector<NamedParameter>& parameters,
                                         const std::vector<int>& alone) {
  std::vector<UnitRequest> units;
  for (const int index : alone) units.push_back({parameters[index].name, {index}});
  const size_t first = units.size();
  for (int64_t layer = 0; layer < model.num_layers(); ++layer) {
    units.push_back({.name = fmt::format("layer {}", layer)});
  }
  for (size_t i = 0; i < parameters.size(); ++i) {
    const auto index = static_cast<int>(i);
    if (std::ranges::find(alone, index) != alone.end()) continue;
    units[first + model.layer_of(parameters[i].tensor)].parameters.push_back(index);
  }
  for (UnitRequest& unit : units) unit.layers = readers_of(unit, model, parameters);
  return units;
}

/// NO_SHARD is a group of this rank alone, whose replicas are the others.
std::pair<comm::Group, ShardingOptions> apply(ShardingStrategy strategy, const comm::Group& group,
                                              ShardingOptions options) {
  if (strategy == ShardingStrategy::kHybridShard && !options.replicas) {
    refuse(
        "HYBRID_SHARD needs `replicas`, the ranks that have the same shard; take the group and "
        "it from two axes of a mesh");
  }
  if (strategy != ShardingStrategy::kNoShard) return {group, std::move(options)};
  if (options.replicas) refuse("NO_SHARD replicates over the group and takes no `replicas`");
  options.replicas = group;
  options.everyone = group;
  return {group.subgroup({group.rank()}, "alone"), std::move(options)};
}

/// Whether ranks own different numbers of grains, and so compute a different number of times.
bool is_uneven(const std::vector<layout::Range>& owners) {
  for (const layout::Range& owned : owners) {
    if (owned.empty()) {
      refuse(
          "a rank that owns no grain computes nothing, and the others wait for it to gather "
          "units with them; give every rank a grain");
    }
  }
  return std::ranges::any_of(
      owners, [&](const layout::Range& owned) { return owned.size() != owners[0].size(); });
}

/// To all ranks is what happens anyway; to one is not to reshard.
void apply_resharding(const FullyShardOptions& options, const comm::Group& group,
                      ShardedModel::Spec& spec) {
  agree_on_resharding(options, group, spec.device, kCaller);
  spec.secondary = options.reshard_after_forward_to;
  if (!spec.secondary || spec.residence == Residence::kShared) return;
  if (spec.secondary->size() == 1) spec.rules.reshards_after_forward = false;
  if (spec.secondary->size() == 1 || spec.secondary->size() == group.size()) spec.secondary.reset();
  spec.gradients.secondary = spec.secondary;
}

}  // namespace

ShardingStrategy parse_sharding_strategy(std::string_view name) {
  for (const auto& [known, strategy] : kStrategies) {
    if (known == name) return strategy;
  }
  throw Error(base::invalid_argument(fmt::format(
      "sharding strategy \"{}\" is none of FULL_SHARD, SHARD_GRAD_OP, NO_SHARD, HYBRID_SHARD",
      name)));
}

UnitPolicy units_of_size(int64_t elements) {
  const auto count = [](const torch::nn::Module& module) {
    int64_t sum = 0;
    for (const at::Tensor& parameter : module.parameters()) sum += parameter.numel();
    return sum;
  };
  return [elements, count](const std::string&, const torch::nn::Module& module) {
    const auto children = module.children();
    return count(module) >= elements && std::ranges::none_of(children, [&](const auto& child) {
             return count(*child) >= elements;
           });
  };
}

Sharded fully_shard(torch::nn::Module& module, const comm::Group& asked_group,
                    const FullyShardOptions& options) {
  auto [group, sharding] = apply(options.strategy, asked_group, options.sharding);
  sharding.precision = agree_on_precision(sharding.precision, options.calls == UnitCalls::kExplicit,
                                          sharding, group, kCaller);
  ShardedModel::Spec spec{kCaller, {.group = group}};
  const layers::Model* model = layered(module, options);
  if (model == nullptr) spec.units = find_units(module, options);
  spec.module = &module;
  spec.parameters = prepare(module, group, sharding, kCaller);
  if (model == nullptr) {
    share_out(module, spec.parameters, spec.units);
  } else {
    spec.units =
        units_of_layers(*model, spec.parameters, indices_of(sharding.alone, spec.parameters));
  }
  take_options(sharding, spec);
  spec.residence = shares_parameters(spec, sharding) ? Residence::kShared : Residence::kGathered;
  spec.rules.reshards = true;
  spec.rules.reshards_after_forward = options.strategy != ShardingStrategy::kShardGradOp;
  apply_resharding(options, asked_group, spec);
  spec.observes = options.calls == UnitCalls::kLens;
  spec.gradients.options = agree_on_options(spec, sharding);
  // Backwards of stages do not follow their forwards, nor does a stage's batch end with its own.
  const bool in_stages = !sharding.parts.empty();
  spec.rules.prefetches = !in_stages;
  if (spec.residence == Residence::kGathered) {
    spec.rules.holds_batch = is_uneven(spec.gradients.options.owners) && !in_stages;
  }
  if (spec.rules.holds_batch && spec.secondary) {
    refuse(
        "reshard_after_forward_to has no effect where ranks own different numbers of grains: units "
        "stay whole from a rank's first grain to its last; share grains evenly, or leave it out");
  }
  Sharded sharded(ShardedModel::create(std::move(spec)));
  cast_buffers(module, sharding.precision);
  return sharded;
}

}  // namespace hanji::parallel
