#pragma once

#include <cstdint>

#include "hanji/parallel/fsdp/sharded.h"

namespace torch::nn {
class Module;
}

namespace hanji::parallel {

/// What of a gradient a rank keeps while backward runs.
enum class WholeGradients : uint8_t {
  kKept,   ///< A buffer for every unit, all the time (ZeRO-1).
  kFreed,  ///< A few buffers that all units reuse; after backward only the shards (ZeRO-2).
};

struct ShardOptimizerOptions {
  ShardingOptions sharding = {};
  WholeGradients whole_gradients = WholeGradients::kKept;
  int64_t unit_bytes = 25 << 20;  ///< Parameters whose gradients travel together.
};

/// Shards the optimizer's state, and with WholeGradients::kFreed the gradients, of an ordinary
/// module over `group`: every rank computes with whole parameters, has the reduced gradients of its
/// shards only, and updates those; step() makes the parameters whole again.
///
///   auto sharded = hanji::shard_optimizer(*net, world.group());
///   torch::optim::AdamW optimizer(sharded.parameters(), 3e-4);
///   loss.backward();
///   sharded.step(optimizer);
///
/// Result  parameters as data_parallel() gives, bit for bit: the sums have the same order.
/// Order   all ranks call this and every later backward() and step() in the same order. Frozen
///         parameters and buffers are rank 0's at the start, and nobody's after it.
/// Cost    per step a reduce_scatter of the gradients and an all_gather of the parameters, together
///         what an all_reduce moves; on one host parameters lie once, and no byte of them moves.
///         Per rank, with AdamW in float32: on one host 4 (ZeRO-1) bytes per parameter, or buffers
///         for max_units_in_flight units (ZeRO-2); and (4 + 4 + 8) / ranks of all parameters, those
///         themselves included. With a param_dtype whole parameters have its size, and the shards
///         are masters beside them; frozen parameters are converted and sharded with them.
/// Errors  throws kMismatch if names, shapes or dtypes differ between ranks, kInvalidArgument if
///         nothing requires a gradient, parameters lie on several devices, are sharded already or
///         trained by another handle; all at once, by name, on all ranks. kInvalidArgument for
///         casts of inputs or outputs: nobody sees calls.
/// Source  Rajbhandari et al., ZeRO, SC 2020, sections 5.1 and 5.2.
Sharded shard_optimizer(torch::nn::Module& module, const comm::Group& group,
                        const ShardOptimizerOptions& options = {});

/// The same of a module that hanji::deferred() built: each rank computes the initial values of its
/// shards; see fully_shard().
template <class Holder>
Sharded shard_optimizer(const lens::Deferred<Holder>& built, const comm::Group& group,
                        ShardOptimizerOptions options = {}) {
  Holder module = built.module;
  options.sharding.initial = built.initial;
  return shard_optimizer(*module, group, options);
}

}  // namespace hanji::parallel
