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

/// Ranks that a launcher which knows nothing of jobs has started: `hanji run`, torchrun, mpirun or
/// srun, on one host or several.
struct StartedRanks {
  int rank = 0;
  int ranks = 1;
  int local_ranks = 1;
  int threads = 1;  ///< Of each: OMP_NUM_THREADS, else this host's usable cores shared out evenly.
  std::vector<int> ranks_per_host = {};    ///< Empty: all on one, or not yet known.
  std::optional<cost::Network> link = {};  ///< Between hosts, if it was measured.
};

/// What the ranks know once they have met.
struct MetRanks {
  std::string description;          ///< For people: which engine, over how many hosts.
  std::vector<int> ranks_per_host;  ///< As in StartedRanks, as the link.
  std::optional<cost::Network> link;
};

/// This process among them; nothing if it was started alone.
/// Errors  as launch::detect().
Result<std::optional<StartedRanks>> find_started_ranks();
/// The same of ranks that have met, for the first of them.
Result<StartedRanks> started_ranks(const world::World& world);

/// A job that rank 0 has decided for all ranks.
struct JoinedJob {
  plan::Plan plan;
  std::filesystem::path out;
  std::filesystem::path resume_from = {};
  std::shared_ptr<base::FolderLock> lock = nullptr;  ///< Of `out`.
};

/// What rank 0 decides: a job, or the exit code with which all ranks end without one.
struct Decision {
  int exit_code = 0;
  std::optional<JoinedJob> job;
};

/// How the ranks ended.
struct JoinedOutcome {
  int exit_code = 0;  ///< Where no job was run.
  RankOutcome rank;
};

/// Meets the other ranks, measures what joins their hosts, lets rank 0 decide, writes plan.json, and
/// trains.
///
/// Order   called by every rank; `decide` by rank 0 alone, after all have met. The others take the
///         plan from it, whatever their own configuration says.
/// Errors  throws as world::connect(), what `decide` throws, and what the job throws; the other
///         ranks are told.
JoinedOutcome run_joined(const std::function<Decision(const MetRanks& met)>& decide,
                         RankOptions options);
/// The same where they have met: `world` outlives the job. Signals that end a run early must be
/// blocked in threads that the process has beside this one and hanji's.
JoinedOutcome run_joined(world::World& world,
                         const std::function<Decision(const MetRanks& met)>& decide,
                         RankOptions options);

}  // namespace hanji::train
