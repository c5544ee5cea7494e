#pragma once

#include <cstdint>
#include <vector>

#include "hanji/base/status.h"
#include "hanji/plan/plan.h"
#include "hanji/schedule/action.h"

namespace hanji::plan {

/// How a rank gathers the units of a ShardPlan in a step, where parameters are sharded.
struct Gathers {
  std::vector<int64_t> times = {};  ///< Of each unit.
  int64_t peak_elements = 0;        ///< Of units that are whole at once.
};

/// Whether ranks gather the parameters that are sharded, and do not share one copy: with
/// parallel.share_memory = false, and wherever shards lie on several hosts.
bool gathers_parameters(const Plan& plan);

/// parallel.reshard, decided: a step for stages of a pipeline and for data coordinates with different
/// numbers of micro-batches.
Reshard reshard_of(const Plan& plan);

/// What a rank with this list of actions gathers if units are resharded so; as parallel/fsdp carries it
/// out.
///
/// `actions`: without unshards. Cost: linear in actions times layers.
Gathers gathers_of(const Plan& plan, int rank, const schedule::ActionList& actions,
                   Reshard reshard);

/// The same of the rank's own step and the plan's parallel.reshard; nothing where ranks share one copy.
Gathers gathers_of(const Plan& plan, int rank);

/// Received in a step by all ranks, if units are resharded so.
int64_t gathered_bytes(const Plan& plan, Reshard reshard);

/// Sent between hosts in a step to gather parameters, of shards that span hosts.
int64_t gathered_between_hosts(const Plan& plan);

/// Errors  invalid_argument for ranks that would gather different numbers of times.
Status check_gathers(const Plan& plan);

}  // namespace hanji::plan
