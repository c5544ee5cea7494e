#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "hanji/comm/group.h"
#include "hanji/layout/flat.h"
#include "hanji/parallel/flat_optimizer.h"
#include "hanji/parallel/named_parameter.h"
#include "hanji/parallel/placed_tensors.h"

namespace torch::nn {
class Module;
}

namespace hanji::parallel {

/// Dtypes of a module's parameters and buffers. Outputs have the dtype of the parameters; convert them
/// before a loss that needs more precision: out.to(torch::kFloat).
struct MixedPrecision {
  at::ScalarType parameters = at::kBFloat16;
  /// Of floating-point buffers. torch's BatchNorm needs the dtype of its parameters.
  at::ScalarType buffers = at::kFloat;
};

/// Float32 master weights, unsharded on every rank, of a module that computes in a lower precision.
/// fully_shard() and shard_optimizer() keep master weights in their shards: MixedPrecisionPolicy.
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
  /// Copies rank 0's values and converts the module.
  /// Order   every rank, before any other object refers to the module's memory.
  /// Errors  throws kInvalidArgument for a policy or a parameter that is not floating-point.
  MasterWeights(torch::nn::Module& module, const comm::Group& group,
                const MixedPrecision& policy = {});

  /// Moves the copies into one buffer of `layout` for the optimizer. Call it once.
  /// Shape   `gradients` float32, in the layout; parameters in the order of learning_parameters().
  FlatPart part(const layout::FlatLayout& layout, const at::Tensor& gradients,
                const GroupRule& rule = decay_matrices());

  /// Rounds the copies into the module's parameters. Call it after each update.
  /// Errors  throws kInvalidArgument, naming them, for parameters whose memory torch::load(), Module::to()
  ///         or set_data() has replaced: their values would be lost. Write to values() instead.
  void publish() const;

  /// The copies, under their parameters' names, for checkpoints.
  const std::vector<NamedParameter>& values() const { return values_; }

 private:
  std::vector<NamedParameter> parameters_;
  std::vector<NamedParameter> values_;
  PlacedTensors placed_;  ///< The parameters.
};

}  // namespace hanji::parallel
