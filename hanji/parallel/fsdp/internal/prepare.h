#pragma once

#include <string>
#include <vector>

#include "hanji/parallel/fsdp/internal/sharded_model.h"

namespace hanji::parallel {

/// The distinct parameters of `module`, frozen ones too, in order of registration, after they have
/// been found alike on all ranks and have become rank 0's, as have the buffers. Of a module that was
/// deferred they have no memory yet, and will hold the same on all ranks.
///
/// Errors  throws, on every rank: kMismatch if ranks differ; kInvalidArgument if nothing learns, a
///         parameter is sharded already, has no memory and no initial values, or they lie on several
///         devices. All name the parameter.
std::vector<NamedParameter> prepare(const torch::nn::Module& module, const comm::Group& group,
                                    const ShardingOptions& options, const std::string& caller);

/// Where some parameters are among others, without those that are not, in the order of the others.
std::vector<int> indices_of(const std::vector<at::Tensor>& some,
                            const std::vector<NamedParameter>& parameters);

/// Who takes part, and where the parameters of `spec`, which are those that prepare() gave, will be.
void take_options(const ShardingOptions& options, ShardedModel::Spec& spec);

/// Whether parameters lie once: on one host, unless the options say no.
bool shares_parameters(const ShardedModel::Spec& spec, const ShardingOptions& options);

/// The options with owners filled in, once all ranks are found to have asked for the same, of what
/// can be. `spec` is complete but for them. A collective.
///
/// Errors  throws, on every rank: kMismatch if ranks differ; what the first rank that has a mistake
///         throws: kInvalidArgument, kUnsupported.
ShardingOptions agree_on_options(const ShardedModel::Spec& spec, ShardingOptions options);

}  // namespace hanji::parallel
