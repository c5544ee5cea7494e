#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "hanji/comm/group.h"
#include "hanji/parallel/fsdp/sharded.h"

namespace hanji::parallel {

/// The dtypes of one unit.
struct UnitDtypes {
  at::ScalarType shard = at::kFloat;    ///< Of the shards and their gradients.
  at::ScalarType compute = at::kFloat;  ///< Of whole parameters.
  at::ScalarType reduce = at::kFloat;   ///< Of whole gradients.
};

/// Of a unit whose parameters have `own`; those that are not floating stay what they are.
UnitDtypes dtypes_of(at::ScalarType own, const MixedPrecisionPolicy& policy);

/// The policy with cast_forward_inputs filled in.
///
/// `sees_calls`: units are called by name, so that arguments and results can be cast.
/// Errors  throws on every rank: kInvalidArgument for a dtype that nothing computes in, and for
///         casts where calls are not seen; kMismatch if ranks have different policies.
MixedPrecisionPolicy agree_on_precision(MixedPrecisionPolicy policy, bool sees_calls,
                                        const ShardingOptions& options, const comm::Group& group,
                                        const std::string& caller);

/// Converts the module's floating buffers, for every handle to them, once they have their values.
void cast_buffers(const torch::nn::Module& module, const MixedPrecisionPolicy& policy);

/// In words, for a description; empty: nothing is mixed.
std::string to_string(const MixedPrecisionPolicy& policy);

}  // namespace hanji::parallel
