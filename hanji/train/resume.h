#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "hanji/plan/load_config.h"
#include "hanji/plan/plan.h"
#include "hanji/train/dataset.h"
#include "hanji/train/joined_job.h"

namespace hanji::train {

/// A run as it lies in its folder, to go on with.
struct SavedRun {
  plan::Plan plan;                   ///< Of the run that saved.
  std::filesystem::path checkpoint;  ///< Empty: none was saved yet, so it begins anew.
  int64_t steps_done = 0;
  std::string job = "{}";                ///< The manifest's.
  std::vector<std::string> passed_over;  ///< Why newer checkpoints are not used.
  bool is_finished = false;              ///< All its steps are done and summed up.
};

/// Looks into the folder of a run. Without a checkpoint, the job is that of its plan.json.
///
/// Result  nothing where `out` is missing or empty: there is nothing to go on with.
/// Errors  kInvalidArgument for a folder that holds something else; kCorrupt, with every reason,
///         when checkpoints lie there and none is good.
Result<std::optional<SavedRun>> find_saved_run(const std::filesystem::path& out);

/// The plan by which a saved run goes on, and what it changes.
struct ResumedPlan {
  plan::Plan plan;
  std::vector<std::string> changes;  ///< A line each, for people.
};

/// Plans as plan::make_plan() does, with the recorded kernels; rates are measured only for another
/// number of ranks. `asked` was loaded with the saved configuration as its base.
///
/// `started`: ranks that are there already, if they are. `own`: of a program; null: what the
/// configuration names.
/// Errors  as plan::resume_config() and plan::make_plan(); kInvalidArgument, with both values, when
///         the data is not what the run has learned from, or fewer steps are wanted than are done;
///         kUnsupported where this processor has not the vector instructions of the run's kernels.
Result<ResumedPlan> plan_resumed(const SavedRun& saved, const plan::LoadedConfig& asked,
                                 const std::optional<StartedRanks>& started = {},
                                 const Workload* own = nullptr);

/// Compares the data with the checksum and vocabulary of a manifest's `job`.
/// Errors  kInvalidArgument with both values.
Status check_same_data(const std::string& job, const Dataset& dataset);

}  // namespace hanji::train
