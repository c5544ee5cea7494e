#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include "hanji/launch/launcher.h"
#include "hanji/plan/plan.h"

namespace hanji::train {

struct JobLaunch {
  std::filesystem::path out;  ///< From claim_folder().
  int64_t started_ns = 0;
  std::filesystem::path resume_from = {};  ///< A checkpoint; empty: a new run.
  int max_restarts = 0;                    ///< After failures, from the newest valid checkpoint.
  int terminal_columns =
      0;  ///< stdout is a terminal so wide: the progress line is overwritten; 0: none.
  launch::Rank0Output rank0_output = launch::Rank0Output::kLogAndLauncher;
  std::function<void(const launch::RankEvent&)> on_event = {};
};

/// The options to start the ranks of a plan by a verb of hanji, which has no other children: CPUs, logs in
/// `out`; without a command.
launch::LaunchOptions launch_options(const plan::Plan& plan, std::string plan_json,
                                     const std::filesystem::path& out);

/// Writes plan.json, starts one rank per share of the plan through the command's hidden verb, and
/// waits. ranks.json has rank, pid and host of the launcher and of every running rank.
///
/// A failed run is restarted as by launch::launch_with_restarts().
/// Errors  as launch::launch_with_restarts(); the failure of a rank is an Outcome.
Result<launch::Outcome> launch_job(const plan::Plan& plan, const JobLaunch& job);

}  // namespace hanji::train
