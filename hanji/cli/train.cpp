#include <fmt/format.h>
#include <unistd.h>

#include <functional>
#include <iostream>
#include <utility>

#include "hanji/base/clock.h"
#include "hanji/base/file.h"
#include "hanji/cli/exit_code.h"
#include "hanji/cli/job_options.h"
#include "hanji/cli/notify.h"
#include "hanji/cli/verbs.h"
#include "hanji/plan/nccl_variables.h"
#include "hanji/plan/resume.h"
#include "hanji/train/joined_job.h"
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
  std::optional<train::StartedRanks> started;  ///< By another launcher, this process among them.
};

/// What is done with a job whose plan and folder are ready.
using Start = std::function<int(const plan::Plan&, train::JobLaunch, base::FolderLock)>;

/// Starts its ranks, keeping the folder as long as they live.
int launch(const plan::Plan& plan, const TrainFlags& flags, train::JobLaunch launch) {
  launch.started_ns = flags.started_ns;
  launch.max_restarts = flags.max_restarts;
  launch.terminal = isatty(STDOUT_FILENO) != 0;
  launch.on_event = notify;
  return train::launch_job(plan, launch).or_throw().exit_code;
}

int start(plan::Plan plan, train::JobLaunch launch, base::FolderLock lock, const Start& act) {
  plan.config.run.out = launch.out.string();
  for (const std::string& line :
       plan::overridden_variables(plan.config, base::read_environment())) {
    std::cout << "note: " << line << "\n";
  }
  std::cout << plan::describe(plan) << "\n" << std::flush;
  return act(plan, std::move(launch), std::move(lock));
}

Result<plan::Plan> prepare(const plan::Config& config, const plan::DataFacts& data,
                           const TrainFlags& flags) {
  return flags.started ? train::prepare_started(config, data, *flags.started)
                       : train::prepare(config, data);
}

int begin_job(const plan::LoadedConfig& loaded, const TrainFlags& flags, const Start& act) {
  using train::FolderUse;
  const auto checked =
      train::check_job(loaded, flags.resume ? FolderUse::kNone : FolderUse::kClaim);
  if (const int code = report_mistakes(checked); code != 0) return code;
  const plan::Plan plan = prepare(loaded.config, checked.dataset->facts(), flags).or_throw();
  const std::string& wanted = loaded.config.run.out;
  // A run that was killed before it had a plan has left empty folders.
  const auto out =
      (flags.resume ? train::reopen_folder(wanted, 0) : train::claim_folder(wanted)).or_throw();
  return start(plan, {.out = out}, train::lock_folder(out).or_throw(), act);
}

train::StartedBy started_by(const TrainFlags& flags) {
  return flags.started ? train::StartedBy::kLauncher : train::StartedBy::kUs;
}

/// Ranks that are there already are as many as they are.
void count_ranks(plan::LoadedConfig& loaded, const TrainFlags& flags) {
  if (!flags.started) return;
  int64_t& ranks = loaded.config.run.ranks;
  const bool was_asked = loaded.origins.contains("run.ranks") && ranks != plan::kAuto;
  if (was_asked && ranks != flags.started->ranks) {
    plan::ConfigMistake& mistake = loaded.mistakes.emplace_back();
    mistake.key = "run.ranks";
    mistake.origin = loaded.origins.find("run.ranks")->second;
    mistake.message = fmt::format("run.ranks is {}, but the launcher of these ranks has started {}",
                                  ranks, flags.started->ranks);
    mistake.suggestion = "leave it out";
  }
  ranks = flags.started->ranks;
}

int go_on(const train::SavedRun& saved, const JobOptions& job, const TrainFlags& flags,
          const Start& act) {
  plan::LoadedConfig loaded =
      job.load({.base = plan::resume_base(saved.plan.config), .base_source = "the saved run"});
  count_ranks(loaded, flags);
  train::check_engine(loaded, started_by(flags));
  if (const int code = report_mistakes(loaded); code != 0) return code;
  const std::filesystem::path folder = loaded.config.run.out;
  auto lock = train::lock_folder(folder).or_throw();
  const train::ResumedPlan resumed = train::plan_resumed(saved, loaded, flags.started).or_throw();
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
  return start(resumed.plan, {.out = out, .resume_from = saved.checkpoint}, std::move(lock), act);
}

int train_job(const JobOptions& job, const TrainFlags& flags, const Start& act) {
  plan::LoadedConfig loaded = job.load();
  count_ranks(loaded, flags);
  train::check_engine(loaded, started_by(flags));
  if (!flags.resume) return begin_job(loaded, flags, act);
  const std::string& out = loaded.config.run.out;
  if (out.empty()) {
    std::cerr << "hanji: --resume goes on with a run; name its folder with --out\n";
    return kUsage;
  }
  if (const auto saved = train::find_saved_run(out).or_throw()) {
    return go_on(*saved, job, flags, act);
  }
  std::cout << "nothing to resume in " << out << ": begins a new run\n";
  return begin_job(loaded, flags, act);
}

/// Starts the ranks of this host.
int launch_job(const JobOptions& job, const TrainFlags& flags) {
  return train_job(job, flags,
                   [&](const plan::Plan& plan, train::JobLaunch ready, base::FolderLock) {
                     return launch(plan, flags, std::move(ready));
                   });
}

/// Is one of the ranks that another launcher has started. Rank 0 decides and prints for all.
int join_job(const JobOptions& job, const TrainFlags& flags) {
  if (flags.max_restarts > 0) {
    throw Error(base::unsupported(
        "--max-restarts: these ranks were started by another launcher, which alone can start them "
        "again: give it the option, and hanji train --resume"));
  }
  const auto decide = [&](const train::MetRanks& met) {
    std::cout << met.description << "\n";
    TrainFlags known = flags;
    known.started->ranks_per_host = met.ranks_per_host;
    known.started->link = met.link;
    train::Decision decision;
    decision.exit_code = train_job(
        job, known, [&](const plan::Plan& plan, train::JobLaunch ready, base::FolderLock lock) {
          base::throw_if_error(
              base::write_file_atomic(ready.out / "plan.json", plan::to_json(plan)));
          decision.job = {plan, ready.out, ready.resume_from,
                          std::make_shared<base::FolderLock>(std::move(lock))};
          return 0;
        });
    return decision;
  };
  train::RankOptions options{.out = "", .started_ns = flags.started_ns};
  options.output.write = [](std::string_view text) { std::cout << text << std::flush; };
  const train::JoinedOutcome outcome = train::run_joined(decide, std::move(options));
  return outcome.exit_code != 0 ? outcome.exit_code : stop_code(outcome.rank.stop_signal);
}

}  // namespace

void add_train(Verb command) {
  const Verb verb = command.add_verb("train", "Train a GPT on your text with one rank per core");
  auto job = std::make_shared<JobOptions>();
  auto flags = std::make_shared<TrainFlags>();
  job->add_to(verb);
  verb.add_flag("--print-config", &flags->print_config,
                "print every key with its origin, and stop");
  verb.add_flag("--resume", &flags->resume,
                "go on with the run in --out from its newest good checkpoint");
  verb.add_option("--max-restarts", &flags->max_restarts,
                  "start again from the last checkpoint when a rank fails, at most so often")
      .type_name("N")
      .not_negative();
  flags->started_ns = base::now_ns();
  verb.on_chosen([=] {
    if (!flags->print_config) {
      flags->started = train::find_started_ranks().or_throw();
      return flags->started ? join_job(*job, *flags) : launch_job(*job, *flags);
    }
    const plan::LoadedConfig loaded = job->load();
    return print_with_origins(loaded);
  });
}

}  // namespace hanji::cli
