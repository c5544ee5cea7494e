#include <CLI/CLI.hpp>
#include <iostream>

#include "hanji/cli/exit_code.h"
#include "hanji/cli/job_options.h"
#include "hanji/cli/verbs.h"
#include "hanji/train/prepare.h"

namespace hanji::cli {

void add_plan(CLI::App& app, Run& run) {
  CLI::App* verb = app.add_subcommand("plan", "Show what `train` would do, and start nothing");
  auto job = std::make_shared<JobOptions>();
  auto as_json = std::make_shared<bool>(false);
  auto print_config = std::make_shared<bool>(false);
  job->add_to(*verb);
  verb->add_flag("--json", *as_json, "the plan as JSON");
  verb->add_flag("--print-config", *print_config, "print every key with its origin, and stop");
  verb->callback([=, &run] {
    run = [=] {
      if (*print_config) return print_with_origins(job->load());
      const auto checked = train::check_job(job->load(), train::FolderUse::kNone);
      if (const int code = report_mistakes(checked); code != 0) return code;
      const plan::Plan plan =
          train::prepare(checked.loaded.config, checked.dataset->facts()).or_throw();
      std::cout << (*as_json ? plan::to_json(plan) : plan::describe(plan)) << std::flush;
      return 0;
    };
  });
}

}  // namespace hanji::cli
