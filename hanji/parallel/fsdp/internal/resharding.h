#pragma once

#include <c10/core/Device.h>

#include <optional>

#include "hanji/comm/group.h"
#include "hanji/parallel/fsdp/fully_shard.h"

namespace hanji::parallel {

/// Checks reshard_after_forward_to among all ranks of `group`, the one that is sharded over, whose
/// tensors lie on `device`. A collective, whether or not the option is there.
///
/// Errors  throws on every rank: kMismatch if ranks have groups of different sizes, or none;
///         kInvalidArgument for a strategy without resharding, for sizes that do not divide the
///         group, for ranks that are not consecutive in it, for an engine that cannot move the
///         tensors.
void agree_on_resharding(const FullyShardOptions& options, const comm::Group& group,
                         c10::Device device, const std::string& caller);

}  // namespace hanji::parallel
