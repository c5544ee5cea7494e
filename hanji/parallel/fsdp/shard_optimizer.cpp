#include "hanji/parallel/fsdp/shard_optimizer.h"

#include "hanji/parallel/fsdp/internal/prepare.h"

namespace hanji::parallel {

Sharded shard_optimizer(torch::nn::Module& module, const comm::Group& group,
                        const ShardOptimizerOptions& options) {
  const std::string caller = "shard_optimizer";
  ShardedModel::Spec spec{caller, {.group = group}};
  spec.module = &module;
  ShardingOptions sharding = options.sharding;
  sharding.precision =
      agree_on_precision(sharding.precision, /*sees_calls=*/false, sharding, group, caller);
  const auto all = prepare(module, group, sharding, caller);
  std::vector<int64_t> sizes;
  for (const auto& entry : all) {
    // Frozen parameters are nobody's, but they are computed with beside those that are converted.
    if (!entry.tensor.requires_grad() && !sharding.precision.param_dtype) continue;
    spec.parameters.push_back(entry);
    sizes.push_back(entry.tensor.numel());
  }
  const auto dtype = dtypes_of(spec.parameters[0].tensor.scalar_type(), sharding.precision).reduce;
  const auto element_bytes = static_cast<int64_t>(c10::elementSize(dtype));
  const auto alone = indices_of(sharding.alone, spec.parameters);
  for (auto& indices : layout::group_by_size(sizes, options.unit_bytes / element_bytes, alone)) {
    spec.units.push_back({"of " + spec.parameters[indices[0]].name, std::move(indices)});
  }
  take_options(sharding, spec);
  spec.residence = shares_parameters(spec, sharding) ? Residence::kShared : Residence::kReplicated;
  spec.gradients.keeps_whole = options.whole_gradients == WholeGradients::kKept;
  spec.gradients.options = agree_on_options(spec, sharding);
  Sharded sharded(ShardedModel::create(std::move(spec)));
  cast_buffers(module, sharding.precision);
  return sharded;
}

}  // namespace hanji::parallel
