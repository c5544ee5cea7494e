#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "hanji/plan/load_config.h"

namespace hanji::plan {

/// The configuration of a run that goes on.
struct ResumedConfig {
  Config config;                     ///< For make_plan(); kernels are the recorded ones.
  std::vector<std::string> changes;  ///< A line for each: "train.steps 20 -> 40 (--steps)".
};

/// True for a key that decides the result of a run, so that a run which goes on must keep it. The
/// data's own bytes are compared by checksum, not by path; train.steps and what only watches may
/// change, and so may everything that decides how the work is shared out.
bool belongs_to_job(std::string_view key);

/// A recorded configuration as the base of what the user sets: without what follows from other keys,
/// and would contradict them.
Config resume_base(Config recorded);

/// Lays what the user set (`asked`, loaded with `recorded` as its base) over a recorded
/// configuration. "auto" keeps what was decided. With another number of ranks, micro-batches and
/// threads are decided anew unless they are set.
///
/// Errors  kInvalidArgument, naming every key of the job and every kernel that was set to another
///         value, with both values.
Result<ResumedConfig> resume_config(const Config& recorded, const LoadedConfig& asked);

}  // namespace hanji::plan
