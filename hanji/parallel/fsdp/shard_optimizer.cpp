#include "hanji/parallel/fsdp/shard_optimizer.h"

#include "hanji/parallel/fsdp/internal/prepare.h"

namespace hanji::parallel {

Sharded shard_optimizer(torch::nn::Module& module, const comm::Group& group,
                        const ShardOptimizerOptions& options) {
  const std::string caller = "shard_optimizer";
  ShardedModel::Spec spec{caller, {.group = group}};
  const auto all = prepare(module, group, options.sharding, caller);
  std::vector<int64_t> sizes;
  for (const auto& entry : all) {
    if (!entry.tensor.requires_grad()) continue;
    spec.parameters.push_back(entry);
    sizes.push_back(entry.tensor.numel());
  }
  const auto element_bytes = static_cast<int64_t>(spec.parameters[0].tensor.element_size());
  for (auto& indices : layout::group_by_size(sizes, options.unit_bytes / element_bytes)) {
    spec.units.push_back({"of " + spec.parameters[indices[0]].name, std::move(indices)});
  }
  spec.residence = shares_parameters(group, options.sharding, spec.parameters)
                       ? Residence::kShared
                       : Residence::kReplicated;
  spec.initial = options.sharding.initial;
  spec.device = options.sharding.device;
  spec.gradients.replicas = options.sharding.replicas;
  spec.gradients.everyone = options.sharding.everyone;
  spec.gradients.options = resolve(options.sharding, group, spec.parameters, caller);
  spec.gradients.keeps_whole = options.whole_gradients == WholeGradients::kKept;
  return Sharded(ShardedModel::create(std::move(spec)));
}

}  // namespace hanji::parallel
