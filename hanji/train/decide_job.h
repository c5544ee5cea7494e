#pragma once

#include <functional>
#include <optional>
#include <string_view>

#include "hanji/plan/load_config.h"
#include "hanji/train/check_job.h"
#include "hanji/train/joined_job.h"

namespace hanji::train {

/// What somebody asks for, who has a configuration and perhaps ranks, data and a model.
struct JobRequest {
  /// The configuration, with what was set in it, over a base: the defaults, or a saved run's.
  std::function<plan::LoadedConfig(plan::ConfigSources)> load;
  bool resume = false;                         ///< The run in run.out, if there is one.
  std::optional<StartedRanks> started = {};    ///< Ranks that are there already.
  const Workload* own = nullptr;               ///< A program's; null: what the keys name.
  std::function<void(std::string_view)> tell;  ///< The plan, and what a resumed run changes.
};

/// What there is to do. Neither a mistake nor a job: all steps of the saved run are done.
struct DecidedJob {
  CheckedJob checked;            ///< Its mistakes, of which there are none beside a job.
  std::optional<JoinedJob> job;  ///< Its folder is made and locked; nothing runs yet.
};

/// Checks what is asked for, plans it, and readies the folder: of a new run, or of a saved one for
/// going on. Tells the plan.
///
/// Errors  as check_job() in DecidedJob::checked; throws as prepare(), find_saved_run(),
///         plan_resumed() and claim_folder(); kInvalidArgument for resuming without run.out.
DecidedJob decide_job(const JobRequest& request);

}  // namespace hanji::train
