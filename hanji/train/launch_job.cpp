#include "hanji/train/launch_job.h"

#include "hanji/base/file.h"
#include "hanji/launch/restart.h"
#include "hanji/launch/roster.h"
#include "hanji/train/resume.h"

namespace hanji::train {
namespace {

std::vector<std::string> rank_command(const JobLaunch& job, const std::string& program,
                                      const std::filesystem::path& resume_from) {
  std::vector<std::string> command = {
      program, "rank", "--out", job.out.string(), "--started-ns", std::to_string(job.started_ns)};
  if (!resume_from.empty()) {
    command.insert(command.end(), {"--resume-from", resume_from.string()});
  }
  if (job.terminal_columns > 0) {
    command.insert(command.end(), {"--terminal", std::to_string(job.terminal_columns)});
  }
  return command;
}

}  // namespace

launch::LaunchOptions launch_options(const plan::Plan& plan, std::string plan_json,
                                     const std::filesystem::path& out) {
  launch::LaunchOptions options;
  options.program = launch::Program::kThis;
  options.ranks = plan.ranks;
  options.plan_json = std::move(plan_json);
  options.cpus = plan.cpus;
  options.environment = topology::wait_variables(plan.waits);
  options.log_directory = out / "logs";
  options.rank0_output = launch::Rank0Output::kLogAndLauncher;
  options.adopts_orphans = true;
  options.saves_at_stop = true;
  return options;
}

Result<launch::Outcome> launch_job(const plan::Plan& plan, const JobLaunch& job) {
  const std::string plan_json = plan::to_json(plan);
  HANJI_RETURN_IF_ERROR(base::write_file_atomic(job.out / "plan.json", plan_json));
  HANJI_ASSIGN_OR_RETURN(const auto program, base::executable_path());
  launch::Roster roster(job.out / "ranks.json");
  launch::LaunchOptions options = launch_options(plan, plan_json, job.out);
  options.rank0_output = job.rank0_output;
  options.on_event = [&](const launch::RankEvent& event) {
    roster.note(event);
    if (job.on_event) job.on_event(event);
  };
  launch::RestartOptions restarts{.max_restarts = job.max_restarts};
  restarts.prepare = [&](const launch::Attempt& attempt, launch::LaunchOptions& next) -> Status {
    std::filesystem::path from = job.resume_from;
    if (attempt.restarts > 0) {
      HANJI_ASSIGN_OR_RETURN(const auto saved, find_saved_run(job.out));
      if (saved) from = saved->checkpoint;
    }
    next.command = rank_command(job, program.string(), from);
    return {};
  };
  auto outcome = launch::launch_with_restarts(options, restarts);
  roster.remove();
  HANJI_RETURN_IF_ERROR(roster.status());
  return outcome;
}

}  // namespace hanji::train
