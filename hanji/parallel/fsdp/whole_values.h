#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "hanji/parallel/fsdp/sharded.h"
#include "hanji/parallel/named_parameter.h"

namespace hanji::parallel {

/// What learns, unit by unit, in the memory where it lies whole between steps: once on the host, or
/// with shard_optimizer() on every rank. It can be read while its unit is resharded, and written between
/// steps: where it is once on the host, each element by one rank.
/// Errors  throws kUnsupported where nothing lies whole between steps: where units are gathered, unless
///         ShardingOptions::shards_together is set.
std::vector<NamedParameter> whole_parameters(const Sharded& sharded);

/// The module's parameters that learn, in the order of whole_parameters().
std::vector<NamedParameter> parameters_by_unit(const Sharded& sharded);

/// Of one value per tensor of parameters(), shaped like it (a moment, a mean): the whole ones by
/// the parameters' names, the same on every rank. A collective.
std::vector<NamedParameter> gather_values(const Sharded& sharded,
                                          const std::vector<at::Tensor>& of_shards);
/// The other way round, without communication: this rank's pieces of whole tensors, which must
/// have the names and sizes of the parameters that learn.
std::vector<at::Tensor> scatter_values(const Sharded& sharded,
                                       const std::vector<NamedParameter>& whole);

/// The state of an optimizer of parameters() into one of the module's own parameters, of the same
/// class, and back: for files that know nothing of shards, and for other numbers of ranks or
/// other strategies. Options such as the learning rate stay each optimizer's own.
///
///   auto full = sharded.full_parameters();
///   torch::optim::AdamW whole(net->parameters(), 3e-4);
///   hanji::gather_state(sharded, optimizer, whole);       // then hanji::save(file, *net, whole)
///   hanji::load(file, *net, whole);                       // then
///   hanji::scatter_state(sharded, whole, optimizer);
///
/// Order   gather_state() is a collective, scatter_state() is not.
/// Errors  throws kUnsupported for classes other than torch's AdamW, Adam and SGD,
///         kInvalidArgument for two different ones.
void gather_state(const Sharded& sharded, const torch::optim::Optimizer& of_shards,
                  torch::optim::Optimizer& whole);
void scatter_state(const Sharded& sharded, const torch::optim::Optimizer& whole,
                   torch::optim::Optimizer& of_shards);

}  // namespace hanji::parallel
