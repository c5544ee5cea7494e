#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "hanji/parallel/fsdp/sharded.h"

namespace torch::nn {
class Module;
}

namespace hanji::parallel {

/// Selects what is sharded, by the names of PyTorch.
enum class ShardingStrategy : uint8_t {
  kFullShard,    ///< FULL_SHARD: parameters, gradients, optimizer; sharded again after forward.
  kShardGradOp,  ///< SHARD_GRAD_OP: the same, but unsharded from forward to the end of backward.
  kNoShard,      ///< NO_SHARD: nothing; gradients are reduced as data_parallel() does.
  kHybridShard,  ///< HYBRID_SHARD: FULL_SHARD within the group, replicated over `replicas`.
};

/// Parses "FULL_SHARD" and the other names. Throws kInvalidArgument, with the names, for any other word.
ShardingStrategy parse_sharding_strategy(std::string_view name);

/// Selects how the start of a unit's forward is detected.
enum class UnitCalls : uint8_t {
  kExplicit,  ///< By calls of hanji::unit(module)(x), or by hanji::Sequential.
  kLens,      ///< By the parameters that each operation reads; for unmodified modules.
  kLayers,    ///< By forward() of a layers::Model within unit_scope(); its layers are the units.
};

/// Returns whether a module, with its name within the sharded module, is a unit.
using UnitPolicy = std::function<bool(const std::string& name, const torch::nn::Module& module)>;

/// Selects the modules of one type, such as a transformer's blocks.
template <class Block>
UnitPolicy units_of_type() {
  return [](const std::string&, const torch::nn::Module& module) {
    return dynamic_cast<const Block*>(&module) != nullptr;
  };
}
/// Selects the smallest modules that have `elements` parameter elements or more.
UnitPolicy units_of_size(int64_t elements);

struct FullyShardOptions {
  ShardingOptions sharding = {};
  ShardingStrategy strategy = ShardingStrategy::kFullShard;
  UnitCalls calls = UnitCalls::kExplicit;
  /// Empty: the modules in a hanji::Sequential; with kLens those in any Sequential or ModuleList,
  /// or where there is none the module's own children.
  UnitPolicy units = {};
  /// After forward, a unit is resharded over these ranks instead of the whole group, and backward
  /// gathers it among them; usually the ranks of one host, which have a faster link. They are
  /// consecutive ranks of the group, equally many on each host. Each rank holds 1/n of every unit from its
  /// forward to its backward. With one rank, units stay unsharded, as with SHARD_GRAD_OP. It has no
  /// effect if all ranks of a host map one copy of the parameters.
  ///
  ///   .reshard_after_forward_to = group.split(host, group.rank(), "host")
  ///
  /// Source  Wang et al., ZeRO++, ICLR 2024, section 3.2 (hpZ).
  std::optional<comm::Group> reshard_after_forward_to = {};
};

/// Shards the parameters, gradients and optimizer state of `module` over `group`: each rank keeps its
/// shard and unshards the parameters of a unit while that unit computes (ZeRO-3). Parameters of no other
/// unit, or of several, belong to the root unit, `module` itself, which stays unsharded from its forward
/// to its backward. With UnitCalls::kLayers, a parameter belongs to the first layer that reads it; a unit
/// that another layer reads too stays unsharded from the first forward to its backward.
///
///   auto sharded = hanji::fully_shard(*net, world.group(), {.units = hanji::units_of_type<Block>()});
///   torch::optim::AdamW optimizer(sharded.parameters(), 3e-4);
///   loss(hanji::unit(net)(x)).backward();   // in net's forward: x = hanji::unit(block)(x)
///   sharded.step(optimizer);
///
/// On one host all ranks map one copy of the parameters in the heap: unsharding a unit then needs no
/// communication, and resharding frees no memory. Sharded::description() says whether this applies.
///
/// Result  bit-identical to data_parallel(), because the sums have the same order.
/// Order   if units are gathered, ranks must call units in the same order. The next unit is gathered
///         before its use, in the order of the previous forward, up to max_units_in_flight.
/// Cost    per step and parameter byte where units are gathered: two all_gathers (SHARD_GRAD_OP
///         one, reshard_after_forward_to one and one among those ranks) and a reduce_scatter;
///         memory for the shards and for max_units_in_flight units. In stable the partial sums are
///         whole gradients, and where ranks own different numbers of grains, units that are
///         gathered stay whole from a rank's first grain to its last.
///         With sharding.offload the shards take no memory, but windows of them; a step reads
///         parameters from the disk for each all_gather and for the update, and writes them once.
///         With sharding.precision the bytes of its dtypes travel, and shards are memory of their
///         own on one host too.
/// Errors  as shard_optimizer(); kInvalidArgument for a policy that finds no unit or stands beside
///         UnitCalls::kLayers, for that with a module that is no layers::Model, for HYBRID_SHARD
///         without `replicas`, for a rank without grains where units are gathered, for casts of
///         inputs or outputs with other calls than UnitCalls::kExplicit, and for reshard_after_forward_to with
///         SHARD_GRAD_OP, NO_SHARD, grains that ranks share unevenly, or of other ranks than it
///         says (kMismatch if ranks differ in their number). While its unit does not compute,
///         reading a parameter throws, naming it; a second backward() through one forward() throws,
///         naming the unit; so does the call of a unit outside the root's where that casts outputs. Ranks
///         that gather different units, also of equal size, throw kMismatch, naming both. Gradients with
///         create_graph throw kUnsupported.
/// Source  Zhao et al., PyTorch FSDP, VLDB 2023; Rajbhandari et al., ZeRO, SC 2020, section 5.3.
Sharded fully_shard(torch::nn::Module& module, const comm::Group& group,
                    const FullyShardOptions& options = {});

/// The same for a module built by hanji::deferred(): a rank never holds more than its shards and the
/// units that compute. Buffers are not sharded.
///
/// Result  the shards of built.materialise() in one process, bit for bit, for any number of ranks.
/// Cost    each rank computes the values of its shards; only 8 bytes per tensor are sent, to check that
///         all ranks constructed the same module from the same seed.
/// Errors  as above; kMismatch, naming seed and tensor, if ranks differ in either; kInvalidArgument
///         for a tensor that has memory, was added later, or whose values cannot be repeated.
template <class Holder>
Sharded fully_shard(const lens::Deferred<Holder>& built, const comm::Group& group,
                    FullyShardOptions options = {}) {
  Holder module = built.module;
  options.sharding.initial = built.initial;
  return fully_shard(*module, group, options);
}

}  // namespace hanji::parallel
