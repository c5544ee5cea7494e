#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "hanji/base/folder_lock.h"
#include "hanji/cost/simulate.h"
#include "hanji/plan/plan.h"
#include "hanji/train/rank.h"

namespace hanji::train {

/// Ranks that another launcher has started: `hanji run`, torchrun, mpirun or srun, on one host or
/// several.
struct StartedRanks {
  int rank = 0;
  int ranks = 1;
  int local_ranks = 1;
  bool are_running = true;  ///< False: they are planned as if they were.
  int threads = 1;  ///< Of each: OMP_NUM_THREADS, else an equal share of this host's usable cores.
  std::vector<int> ranks_per_host = {};    ///< Empty: all on one host, or unknown yet.
  std::optional<cost::Network> link = {};  ///< Between hosts, if it was measured.
};

/// The properties of the ranks after rendezvous.
struct MetRanks {
  std::string description;          ///< For output: the engine, the number of hosts.
  std::vector<int> ranks_per_host;  ///< As in StartedRanks; so is the link.
  std::optional<cost::Network> link;
};

/// The ranks of this process; nothing if it was started without a launcher.
/// Errors  as launch::detect().
Result<std::optional<StartedRanks>> find_started_ranks();
/// The same after rendezvous, for rank 0.
Result<StartedRanks> started_ranks(const world::World& world);

/// A job that rank 0 has decided for all ranks.
struct JoinedJob {
  plan::Plan plan;
  std::filesystem::path out;
  std::filesystem::path resume_from = {};
  std::shared_ptr<base::FolderLock> lock = nullptr;  ///< Of `out`.
};

/// The decision of rank 0: a job, or the exit code of all ranks without one.
struct Decision {
  int exit_code = 0;
  std::optional<JoinedJob> job;
};

/// What a rank does with the plan after rendezvous.
using RunPlan =
    std::function<RankOutcome(const RankOptions& options, world::World& world,
                              const comm::Group& group, const plan::Plan& plan, StopSignal& stop)>;

/// How the ranks ended.
struct JoinedOutcome {
  int exit_code = 0;  ///< If no job was run.
  RankOutcome rank;
};

/// Connects to the other ranks, measures the link between their hosts, lets rank 0 decide, writes
/// plan.json, and calls `run`, which trains by default.
///
/// Order   called by every rank; `decide` is called by rank 0 only, after rendezvous. The other ranks
///         receive the plan from rank 0 and ignore their own configuration.
/// Errors  throws as world::connect(), `decide` and the job; the other ranks are notified.
JoinedOutcome run_joined(const std::function<Decision(const MetRanks& met)>& decide,
                         RankOptions options);
/// The same after rendezvous; `world` outlives the job. Other threads of the process must block the
/// signals that end a run early.
JoinedOutcome run_joined(world::World& world,
                         const std::function<Decision(const MetRanks& met)>& decide,
                         RankOptions options, const RunPlan& run = run_plan);

}  // namespace hanji::train
