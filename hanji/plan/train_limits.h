#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "hanji/plan/config.h"
#include "hanji/plan/sharding.h"

namespace hanji::plan {

/// What `hanji train` keeps of a parameter in float32 and bf16; float64 keeps twice as much.
inline constexpr StateWidths kTrainWidths = kFloat32Adam;

/// What `hanji plan --model` sizes and `hanji train` rejects.
enum class TrainLimit : uint8_t {
  kGpus,     ///< Strategies other than ddp on GPUs.
  kEngine,   ///< The same over engines that do not share memory.
  kHosts,    ///< server over several hosts.
  kGroups,   ///< Shards of a pipeline's stage over several hosts.
  kServers,  ///< Servers that do not compute.
  kWidths,   ///< Model state of other widths than kTrainWidths.
  kRanks,    ///< More than base::kMaxRanksPerHost on a host.
};

/// What follows the name of a strategy.
template <>
inline constexpr auto kWords<TrainLimit> = words("on GPUs", "without shared memory",
                                                 "over several hosts",
                                                 "in stages whose shards span hosts",
                                                 "with servers that do not compute",
                                                 "with states of other bytes than 4 + 4 + 8",
                                                 "with more than 16 ranks on a host");

/// A run, as far as it decides whether `hanji train` carries it out.
struct TrainSetup {
  Sharding data = Sharding::kReplicas;
  Device device = Device::kCpu;
  Engine engine = Engine::kShm;  ///< As engine_of() says.
  /// Ranks of each host; absent: not known yet, and only what any hosts rule out is a limit.
  std::optional<std::vector<int>> hosts = {};
  int group_ranks = 1;  ///< Ranks that cut one state, next to each other.
  int stages = 1;       ///< Ranks of a pipeline.
  int servers = 0;      ///< server: ranks that serve and do not compute.
  StateWidths widths = kTrainWidths;
};

/// Why `hanji train` rejects the setup; empty: it does not. Everything that marks or rejects a
/// strategy asks here: find_contradictions(), make_plan() and `hanji plan --model`.
std::vector<TrainLimit> train_limits(const TrainSetup& setup);
bool has_limit(const TrainSetup& setup, TrainLimit limit);

}  // namespace hanji::plan
