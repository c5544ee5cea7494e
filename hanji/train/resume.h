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
#include "hanji/train/timing_progress.h"

namespace hanji::train {

/// A saved run in its folder.
struct SavedRun {
  plan::Plan plan;                        ///< Of the run that saved.
  std::filesystem::path checkpoint = {};  ///< Empty: none was saved, so the run starts again.
  int64_t steps_done = 0;
  std::string job = "{}";                     ///< The manifest's.
  std::vector<std::string> passed_over = {};  ///< Reasons for not using newer checkpoints.
  bool is_finished = false;  ///< All its steps are done, and the summary is written.
};

/// Reads the folder of a run. Without a checkpoint, the job is that of its plan.json.
///
/// Result  nothing if `out` is missing or empty.
/// Errors  kInvalidArgument for a folder with other contents; kCorrupt, with every reason, if there
///         are checkpoints and none is valid.
Result<std::optional<SavedRun>> find_saved_run(const std::filesystem::path& out);

/// The plan of a resumed run, and its changes.
struct ResumedPlan {
  plan::Plan plan;
  std::vector<std::string> changes;  ///< One line each, for output.
};

/// Makes a plan as plan::make_plan(), with the recorded kernels; rates are measured only for another
/// number of ranks. `asked` was loaded with the saved configuration as its base.
///
/// `started`: if the ranks are running already. `own`: of a program; null: that of the configuration.
/// Errors  as plan::resume_config() and plan::make_plan(); kInvalidArgument, with both values, if the
///         data differ from those of the run, or fewer steps are requested than are done;
///         kUnsupported if this processor lacks the vector instructions of the run's kernels, or rounds
///         its products otherwise.
Result<ResumedPlan> plan_resumed(const SavedRun& saved, const plan::LoadedConfig& asked,
                                 const std::optional<StartedRanks>& started = {},
                                 const Workload* own = nullptr,
                                 const TimingProgress& on_timing = {});

/// Compares the data with the checksum and vocabulary of a manifest's `job`.
/// Errors  kInvalidArgument with both values.
Status check_same_data(const std::string& job, const Dataset& dataset);

}  // namespace hanji::train
