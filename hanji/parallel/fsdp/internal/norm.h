#pragma once

#include <vector>

#include "hanji/comm/group.h"
#include "hanji/parallel/fsdp/internal/shard_gradients.h"

namespace hanji::parallel {

/// As Sharded::clip_grad_norm(), of the units that learn, sharded over `group`.
double clip_grad_norm(ShardGradients& gradients, const std::vector<FlatUnit*>& units,
                      const comm::Group& group, double max_norm);

}  // namespace hanji::parallel
