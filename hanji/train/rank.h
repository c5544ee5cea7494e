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
  std::filesystem::path resume_from = {};  ///< A checkpoint; empty: from the beginning.
  Output output = {};                      ///< Used by rank 0.
  const Workload* own = nullptr;           ///< A program's; null: what the plan names.
};

struct RankOutcome {
  int stop_signal = 0;  ///< That ended the run early on all ranks, or 0.
};

/// All that one rank of `hanji train` does: meets the others, follows the plan that it inherited,
/// and leaves its files in `out`. A failure is told to all ranks before it is thrown.
///
/// Order   called by every rank that launch_job() started.
/// Errors  throws what the job throws.
RankOutcome run_rank(const RankOptions& options);

/// The same where the ranks have met and know the plan; `group` is all of them, over its engine.
/// Over several hosts rank 0 alone reads and writes checkpoints, and every rank its data.
///
/// Order   called by every rank of the world.
/// Errors  as run_rank(); kMismatch for data that differs between hosts.
RankOutcome run_plan(const RankOptions& options, world::World& world, const comm::Group& group,
                     const plan::Plan& plan, StopSignal& stop);

}  // namespace hanji::train
