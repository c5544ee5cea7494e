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

/// What is sharded, by the names that PyTorch gave it.
enum class ShardingStrategy : uint8_t {
  kFullShard,    ///< FULL_SHARD: parameters, gradients, optimizer; sharded again after forward.
  kShardGradOp,  ///< SHARD_GRAD_OP: the same, but whole from forward to the end of backward.
  kNoShard,      ///< NO_SHARD: nothing; gradients are reduced as data_parallel() does.
  kHybridShard,  ///< HYBRID_SHARD: FULL_SHARD within the group, replicated over `replicas`.
};

/// Of "FULL_SHARD" and the like. Throws kInvalidArgument, listing the names, for any other.
ShardingStrategy parse_sharding_strategy(std::string_view name);

/// Who tells which unit computes.
enum class UnitCalls : uint8_t {
  kExplicit,  ///< The model, by hanji::unit(module)(x) or hanji::Sequential.
  kLens,      ///< Every operation, by the parameters it reads: for modules as they are.
  kLayers,    ///< forward() of a layers::Model within unit_scope(): its layers are the units.
};

/// Whether a module, of this name in the one that is sharded, is a unit of its own.
using UnitPolicy = std::function<bool(const std::string& name, const torch::nn::Module& module)>;

/// Modules of one type, a transformer's blocks for example.
template <class Block>
UnitPolicy units_of_type() {
  return [](const std::string&, const torch::nn::Module& module) {
    return dynamic_cast<const Block*>(&module) != nullptr;
  };
}
/// The smallest modules that hold `elements` parameters or more.
UnitPolicy units_of_size(int64_t elements);

struct FullyShardOptions {
  ShardingOptions sharding = {};
  ShardingStrategy strategy = ShardingStrategy::kFullShard;
  UnitCalls calls = UnitCalls::kExplicit;
  /// Empty: the modules in a hanji::Sequential; with kLens those in any Sequential or ModuleList,
  /// or where there is none the module's own children.
  UnitPolicy units = {};
  /// After forward a unit is resharded over these ranks instead of over the whole group, so that
  /// backward gathers it among them: ranks of one host, joined by what is faster. Consecutive ranks
  /// of the group, equally many everywhere. Each rank holds 1/n of every unit from its forward to its
  /// backward. Of one rank: units stay whole, as with SHARD_GRAD_OP. Where parameters lie once on the
  /// host it changes nothing.
  ///
  ///   .reshard_after_forward_to = group.split(host, group.rank(), "host")
  ///
  /// Source  Wang et al., ZeRO++, ICLR 2024, section 3.2 (hpZ).
  std::optional<comm::Group> reshard_after_forward_to = {};
};

/// Shards the parameters, gradients and optimizer of `module` over `group`: every rank keeps its
/// share, and makes the parameters of a unit whole while that unit computes (ZeRO-3). What lies in
/// no other unit, or in several, belongs to the root unit, `module` itself, which stays whole from
/// its forward to its backward. With UnitCalls::kLayers a parameter belongs to the first layer that
/// reads it; a unit that another layer reads too stays whole from the first forward to its backward.
///
///   auto sharded = hanji::fully_shard(*net, world.group(), {.units = hanji::units_of_type<Block>()});
///   torch::optim::AdamW optimizer(sharded.parameters(), 3e-4);
///   loss(hanji::unit(net)(x)).backward();   // in net's forward: x = hanji::unit(block)(x)
///   sharded.step(optimizer);
///
/// On one host parameters lie once, in the heap: unsharding a unit needs no communication, and
/// resharding frees nothing; Sharded::description() says which holds.
///
/// Result  as data_parallel() gives, bit for bit: the sums have the same order.
/// Order   ranks must call units in the same order where units are gathered. The next unit is
///         gathered ahead of its use, as the forward before it went, up to max_units_in_flight.
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
///         naming the unit; so does the call of a unit outside the root's where that casts outputs.
/// Source  Zhao et al., PyTorch FSDP, VLDB 2023; Rajbhandari et al., ZeRO, SC 2020, section 5.3.
Sharded fully_shard(torch::nn::Module& module, const comm::Group& group,
                    const FullyShardOptions& options = {});

/// The same of a module that hanji::deferred() built: no rank ever holds more of it than its shards
/// and, while they compute, its units. Buffers get their memory whole.
///
/// Result  the shards of what built.materialise() would give in one process, bit for bit, whatever
///         the number of ranks.
/// Cost    the values of a rank's shards are computed by that rank, and nothing is sent: 8 bytes per
///         tensor tell that all ranks constructed the same, from one seed.
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
