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
  job->add_to(*verb);
  verb->add_flag("--json", *as_json, "the plan as JSON");
  verb->callback([=, &run] {
    run = [=] {
      const plan::LoadedConfig loaded = job->load();
      if (!report_mistakes(loaded)) return kUsage;
      const plan::Plan plan = train::prepare(loaded.config).or_throw();
      std::cout << (*as_json ? plan::to_json(plan) : plan::describe(plan)) << std::flush;
      return 0;
    };
  });
}

}  // namespace hanji::cli
