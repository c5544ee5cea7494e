#include <unistd.h>
#include <CLI/CLI.hpp>
#include <iostream>

#include "hanji/base/clock.h"
#include "hanji/cli/exit_code.h"
#include "hanji/cli/job_options.h"
#include "hanji/cli/verbs.h"
#include "hanji/train/launch_job.h"
#include "hanji/train/prepare.h"
#include "hanji/train/run_folder.h"

namespace hanji::cli {
namespace {

void tell(const launch::RankEvent& event) {
  const bool ordinary =
      event.kind == launch::RankEventKind::kStarted || event.kind == launch::RankEventKind::kEnded;
  if (!ordinary) std::cerr << "hanji: " << event.text << "\n";
}

int train_job(const plan::LoadedConfig& loaded, int64_t started_ns) {
  const auto checked = train::check_job(loaded, train::FolderUse::kClaim);
  if (const int code = report_mistakes(checked); code != 0) return code;
  plan::Plan plan = train::prepare(loaded.config, checked.dataset->facts()).or_throw();
  const auto out = train::claim_folder(loaded.config.run.out).or_throw();
  plan.config.run.out = out.string();
  std::cout << plan::describe(plan) << "\n" << std::flush;
  const train::JobLaunch launch{.out = out,
                                .started_ns = started_ns,
                                .terminal = isatty(STDOUT_FILENO) != 0,
                                .on_event = tell};
  return train::launch_job(plan, launch).or_throw().exit_code;
}

}  // namespace

void add_train(CLI::App& app, Run& run) {
  CLI::App* verb = app.add_subcommand("train", "Train a GPT on your text with one rank per core");
  auto job = std::make_shared<JobOptions>();
  auto print_config = std::make_shared<bool>(false);
  job->add_to(*verb);
  verb->add_flag("--print-config", *print_config, "print every key with its origin, and stop");
  const int64_t started_ns = base::now_ns();
  verb->callback([=, &run] {
    run = [=] {
      const plan::LoadedConfig loaded = job->load();
      return *print_config ? print_with_origins(loaded) : train_job(loaded, started_ns);
    };
  });
}

}  // namespace hanji::cli
