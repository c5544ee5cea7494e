#pragma once

#include <c10/core/ScalarType.h>

#include <optional>

namespace hanji::parallel {

/// In which dtypes a sharded module computes, sums and answers, by the names that PyTorch's FSDP
/// gave them. All are float64, float32, float16 or bfloat16; what is left out stays as it is.
///
///   hanji::fully_shard(*net, group, {.sharding = {.precision = {.param_dtype = torch::kBFloat16,
///                                                               .reduce_dtype = torch::kFloat}}});
///
/// The shards, which the optimizer sees, keep the dtype that the module's parameters have, and so
/// do their gradients: they are the full-precision masters. For a module without shards see
/// MasterWeights.
struct MixedPrecisionPolicy {
  /// Of the whole parameters that floating ones are computed with, frozen ones too, and in which
  /// they travel: each rank rounds its shard before. The module's parameters have it, but while
  /// full_parameters() lives.
  std::optional<at::ScalarType> param_dtype = {};
  /// In which whole gradients are accumulated and summed over ranks; else that of the parameters
  /// computed with. Within one backward() autograd adds up what one parameter is used for in the
  /// parameter's own dtype.
  std::optional<at::ScalarType> reduce_dtype = {};
  /// Of the floating tensors that the root's forward() gives, called by hanji::unit(root)(...) or a
  /// hanji::Sequential. Needs units that are called by name.
  std::optional<at::ScalarType> output_dtype = {};
  /// Of the module's floating buffers: they are converted once, for good.
  std::optional<at::ScalarType> buffer_dtype = {};
  /// Whether floating tensors among the arguments of a unit become param_dtype. Left out: they do
  /// where units are called by name.
  std::optional<bool> cast_forward_inputs = {};

  bool operator==(const MixedPrecisionPolicy&) const = default;
};

}  // namespace hanji::parallel
