#pragma once

#include <cstdint>
#include <filesystem>

#include "hanji/plan/plan.h"
#include "hanji/train/dataset.h"
#include "hanji/train/run_log.h"

namespace hanji::comm {
class Group;
}
namespace hanji::world {
class World;
}

namespace hanji::train {

class StopSignal;

struct RankOptions {
  std::filesystem::path out;
  int64_t started_ns = 0;  ///< When the command started (base::now_ns()), for first_step_seconds.
  std::filesystem::path resume_from = {};  ///< A checkpoint; empty: a new run.
  Output output = {};                      ///< Used by rank 0.
  const Workload* own = nullptr;           ///< A program's; null: that of the plan.
};

struct RankOutcome {
  int stop_signal = 0;  ///< The signal that ended the run early on all ranks, or 0.
};

/// Runs one rank of `hanji train`: connects to the other ranks, executes the inherited plan, and
/// writes its files to `out`. Notifies all ranks of a failure before throwing it.
///
/// Order   called by every rank that launch_job() started.
/// Errors  throws as the job.
RankOutcome run_rank(const RankOptions& options);

/// The same after rendezvous, with the plan; `group` is all ranks, with the plan's engine. Over several
/// hosts only rank 0 reads and writes checkpoints; every rank reads its data.
///
/// Order   called by every rank of the world.
/// Errors  as run_rank(); kMismatch for data that differs between hosts.
RankOutcome run_plan(const RankOptions& options, world::World& world, const comm::Group& group,
                     const plan::Plan& plan, StopSignal& stop);

}  // namespace hanji::train
