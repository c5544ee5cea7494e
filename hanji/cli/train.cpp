#include <unistd.h>
#include <CLI/CLI.hpp>
#include <iostream>

#include "hanji/base/clock.h"
#include "hanji/cli/exit_code.h"
#include "hanji/cli/job_options.h"
#include "hanji/cli/tell.h"
#include "hanji/cli/verbs.h"
#include "hanji/train/launch_job.h"
#include "hanji/train/prepare.h"
#include "hanji/train/resume.h"
#include "hanji/train/run_folder.h"

namespace hanji::cli {
namespace {

/// What the flags of this verb say beside the job.
struct TrainFlags {
  bool print_config = false;
  bool resume = false;
  int max_restarts = 0;
  int64_t started_ns = 0;
};

int start(plan::Plan plan, const TrainFlags& flags, train::JobLaunch launch) {
  plan.config.run.out = launch.out.string();
  std::cout << plan::describe(plan) << "\n" << std::flush;
  launch.started_ns = flags.started_ns;
  launch.max_restarts = flags.max_restarts;
  launch.terminal = isatty(STDOUT_FILENO) != 0;
  launch.on_event = tell;
  return train::launch_job(plan, launch).or_throw().exit_code;
}

int begin_job(const plan::LoadedConfig& loaded, const TrainFlags& flags) {
  using train::FolderUse;
  const auto checked =
      train::check_job(loaded, flags.resume ? FolderUse::kNone : FolderUse::kClaim);
  if (const int code = report_mistakes(checked); code != 0) return code;
  const plan::Plan plan = train::prepare(loaded.config, checked.dataset->facts()).or_throw();
  const std::string& wanted = loaded.config.run.out;
  // A run that was killed before it had a plan has left empty folders.
  const auto out =
      (flags.resume ? train::reopen_folder(wanted, 0) : train::claim_folder(wanted)).or_throw();
  const auto lock = train::lock_folder(out).or_throw();
  return start(plan, flags, {.out = out});
}

int go_on(const train::SavedRun& saved, const JobOptions& job, const TrainFlags& flags) {
  plan::LoadedConfig loaded = job.load({.base = saved.plan.config, .base_source = "the saved run"});
  if (const int code = report_mistakes(loaded); code != 0) return code;
  const std::filesystem::path folder = loaded.config.run.out;
  const auto lock = train::lock_folder(folder).or_throw();
  const train::ResumedPlan resumed = train::plan_resumed(saved, loaded).or_throw();
  if (saved.is_finished && resumed.plan.config.train.steps == saved.steps_done) {
    std::cout << "all " << saved.steps_done << " steps of " << folder.string()
              << " are done; ask for more with --steps\n";
    return 0;
  }
  for (const std::string& reason : saved.passed_over) {
    std::cout << "not usable: " << reason << "\n";
  }
  std::cout << (saved.checkpoint.empty() ? "no checkpoint yet: begins again, with the job of "
                                         : "goes on from ")
            << (saved.checkpoint.empty() ? folder / "plan.json" : saved.checkpoint).string()
            << ", behind step " << saved.steps_done << "\n";
  for (const std::string& change : resumed.changes) std::cout << "changed: " << change << "\n";
  const auto out = train::reopen_folder(folder, saved.steps_done).or_throw();
  return start(resumed.plan, flags, {.out = out, .resume_from = saved.checkpoint});
}

int train_job(const JobOptions& job, const TrainFlags& flags) {
  const plan::LoadedConfig loaded = job.load();
  if (!flags.resume) return begin_job(loaded, flags);
  const std::string& out = loaded.config.run.out;
  if (out.empty()) {
    std::cerr << "hanji: --resume goes on with a run; name its folder with --out\n";
    return kUsage;
  }
  if (const auto saved = train::find_saved_run(out).or_throw()) return go_on(*saved, job, flags);
  std::cout << "nothing to resume in " << out << ": begins a new run\n";
  return begin_job(loaded, flags);
}

}  // namespace

void add_train(CLI::App& app, Run& run) {
  CLI::App* verb = app.add_subcommand("train", "Train a GPT on your text with one rank per core");
  auto job = std::make_shared<JobOptions>();
  auto flags = std::make_shared<TrainFlags>();
  job->add_to(*verb);
  verb->add_flag("--print-config", flags->print_config,
                 "print every key with its origin, and stop");
  verb->add_flag("--resume", flags->resume,
                 "go on with the run in --out from its newest good checkpoint");
  verb->add_option("--max-restarts", flags->max_restarts,
                   "start again from the last checkpoint when a rank fails, at most so often")
      ->type_name("N")
      ->check(CLI::NonNegativeNumber);
  flags->started_ns = base::now_ns();
  verb->callback([=, &run] {
    run = [=] {
      if (!flags->print_config) return train_job(*job, *flags);
      const plan::LoadedConfig loaded = job->load();
      return print_with_origins(loaded);
    };
  });
}

}  // namespace hanji::cli
