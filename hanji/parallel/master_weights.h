#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "hanji/comm/group.h"
#include "hanji/layout/flat.h"
#include "hanji/parallel/flat_optimizer.h"
#include "hanji/parallel/named_parameter.h"

namespace torch::nn {
class Module;
}

namespace hanji::parallel {

/// In which dtypes a module computes and what stays wide. Outputs have the dtype of the parameters;
/// convert them before a loss that needs more: out.to(torch::kFloat).
struct MixedPrecision {
  at::ScalarType parameters = at::kBFloat16;
  /// Floating ones. A BatchNorm of torch wants its statistics in the dtype of its parameters.
  at::ScalarType buffers = at::kFloat;
};

/// Float32 copies of parameters that the module computes with in fewer bits, whole on every rank.
/// fully_shard() and shard_optimizer() keep such copies as their shards: MixedPrecisionPolicy.
///
///   MasterWeights masters(*net, group);                                   // net is bfloat16 now
///   auto replicas = data_parallel(*net, group, {.gradient_dtype = at::kFloat});
///   auto optimizer = flat_adamw(masters.part(replicas.buckets().flat, replicas.flat_gradients()));
///   ...
///   loss.backward(); optimizer->step(3e-4, 1.0); masters.publish();
///
/// Source  Micikevicius et al., Mixed Precision Training, ICLR 2018, section 3.1.
class MasterWeights {
 public:
  /// Takes rank 0's values and converts the module.
  /// Order   every rank, before anything else holds the module's memory.
  /// Errors  throws kInvalidArgument for a policy or a parameter that is not floating.
  MasterWeights(torch::nn::Module& module, const comm::Group& group,
                const MixedPrecision& policy = {});

  /// Moves the copies into one buffer of `layout`, to be updated together; once.
  /// Shape   `gradients` float32, in the layout; parameters in the order of learning_parameters().
  FlatPart part(const layout::FlatLayout& layout, const at::Tensor& gradients,
                const GroupRule& rule = decay_matrices());

  /// Rounds the copies to the module's parameters; after each update.
  void publish() const;

  /// The copies, under their parameters' names: what a checkpoint saves.
  const std::vector<NamedParameter>& values() const { return values_; }

 private:
  std::vector<NamedParameter> parameters_;
  std::vector<NamedParameter> values_;
};

}  // namespace hanji::parallel
