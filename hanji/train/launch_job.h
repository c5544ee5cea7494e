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
  std::filesystem::path resume_from = {};  ///< A checkpoint; empty: from the beginning.
  int max_restarts = 0;                    ///< After failures, from the newest good checkpoint.
  bool terminal = false;  ///< The command's stdout is one: progress stays on its line.
  std::function<void(const launch::RankEvent&)> on_event = {};
};

/// How the ranks of a plan are started: on their CPUs, with logs in `out`; without a command.
launch::LaunchOptions launch_options(const plan::Plan& plan, std::string plan_json,
                                     const std::filesystem::path& out);

/// Writes plan.json, starts one rank per share of the plan through the command's hidden verb, and
/// waits. ranks.json tells rank, pid and host of the launcher and of every rank while they live.
///
/// A failed run is started again as launch::launch_with_restarts() says.
/// Errors  as launch::launch_with_restarts(); a rank's failure is an Outcome.
Result<launch::Outcome> launch_job(const plan::Plan& plan, const JobLaunch& job);

}  // namespace hanji::train
