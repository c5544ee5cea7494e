#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "hanji/plan/load_config.h"

namespace hanji::plan {

/// The configuration of a resumed run.
struct ResumedConfig {
  Config config;                     ///< For make_plan(); kernels are the recorded ones.
  std::vector<std::string> changes;  ///< One line each: "train.steps 20 -> 40 (--steps)".
};

/// True for a key that determines the result of a run, which a resumed run must keep. Data is compared
/// by checksum, not by path. train.steps, keys of logging, and keys that divide the work among ranks
/// may change.
bool belongs_to_job(std::string_view key);

/// A recorded configuration as the base of the user's settings: without values that follow from other
/// keys and might contradict them.
Config resume_base(Config recorded);

/// Applies the user's settings (`asked`, loaded with `recorded` as its base) to a recorded
/// configuration. "auto" keeps the recorded value. With another number of ranks, micro-batches and
/// threads are decided again unless they are set.
///
/// Errors  kInvalidArgument, naming every key of the job and every kernel that was set to another
///         value, with both values.
Result<ResumedConfig> resume_config(const Config& recorded, const LoadedConfig& asked);

}  // namespace hanji::plan
