#include "hanji/plan/train_limits.h"

#include <algorithm>

#include "hanji/base/limits.h"
#include "hanji/plan/network.h"
#include "hanji/plan/shard_plan.h"

namespace hanji::plan {
namespace {

/// Of strategies whose ranks of a host share one copy of the parameters in its memory.
void add_limits_of_shared_memory(const TrainSetup& setup, std::vector<TrainLimit>& limits) {
  if (setup.device == Device::kCuda) limits.push_back(TrainLimit::kGpus);
  const bool several = setup.hosts && setup.hosts->size() > 1;
  const bool shards = cuts_states(setup.data);
  // Over several hosts the engine joins hosts, and the ranks of each share memory in any case.
  const bool joins_hosts = shards && (several || !setup.hosts) && setup.engine != Engine::kNccl;
  const bool on_cpus = setup.device == Device::kCpu;
  if (on_cpus && setup.engine != Engine::kShm && !joins_hosts) {
    limits.push_back(TrainLimit::kEngine);
  }
  if (several && !shards) limits.push_back(TrainLimit::kHosts);
  const int group = std::max(1, setup.group_ranks);
  if (several && shards && setup.stages > 1 && groups_span_hosts({*setup.hosts, {}}, group)) {
    limits.push_back(TrainLimit::kGroups);
  }
}

}  // namespace

std::vector<TrainLimit> train_limits(const TrainSetup& setup) {
  std::vector<TrainLimit> limits;
  if (setup.data != Sharding::kReplicas) add_limits_of_shared_memory(setup, limits);
  if (setup.data == Sharding::kServer && setup.servers > 0) {
    limits.push_back(TrainLimit::kServers);
  }
  if (setup.widths != kTrainWidths) limits.push_back(TrainLimit::kWidths);
  const auto is_full = [](int ranks) { return ranks > base::kMaxRanksPerHost; };
  if (setup.hosts && std::ranges::any_of(*setup.hosts, is_full)) {
    limits.push_back(TrainLimit::kRanks);
  }
  return limits;
}

static_assert(base::kMaxRanksPerHost == 16 && kTrainWidths == StateWidths{4, 4, 8},
              "as kWords<TrainLimit> says");

bool has_limit(const TrainSetup& setup, TrainLimit limit) {
  const auto limits = train_limits(setup);
  return std::ranges::find(limits, limit) != limits.end();
}

}  // namespace hanji::plan
