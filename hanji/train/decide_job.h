#pragma once

#include <functional>
#include <optional>
#include <string_view>

#include "hanji/plan/load_config.h"
#include "hanji/train/check_job.h"
#include "hanji/train/joined_job.h"
#include "hanji/train/timing_progress.h"

namespace hanji::train {

/// What a job is for. kVerify: 20 steps by default, of a job that one process can repeat.
enum class Purpose : bool { kTrain, kVerify };

/// A request for a job, by the command or by a program with its own ranks, data and model.
struct JobRequest {
  /// Loads the configuration over a base: the defaults, or the configuration of a saved run.
  std::function<plan::LoadedConfig(plan::ConfigSources)> load;
  Purpose purpose = Purpose::kTrain;
  bool resume = false;                       ///< Resumes the run in run.out, if it exists.
  std::optional<StartedRanks> started = {};  ///< If the ranks are running already.
  const Workload* own = nullptr;             ///< A program's; null: that of the keys.
  std::function<void(std::string_view)>
      print;  ///< Prints the plan, and the changes of a resumed run.
  TimingProgress on_timing =
      {};  ///< Progress of a plan whose operations are timed first; null: silent.
};

/// The result of decide_job(). Without mistakes and without a job: all steps of the saved run are done.
struct DecidedJob {
  CheckedJob checked;  ///< Without mistakes if there is a job.
  /// Its folder is created, and for training locked; nothing runs yet.
  std::optional<JoinedJob> job;
};

/// Checks the request, makes the plan, prepares the folder of a new or resumed run, and prints the
/// plan.
///
/// Errors  as check_job() in DecidedJob::checked; throws as prepare(), find_saved_run(),
///         plan_resumed() and claim_folder(); kInvalidArgument for resuming without run.out;
///         as check_verifiable().
DecidedJob decide_job(const JobRequest& request);

}  // namespace hanji::train
