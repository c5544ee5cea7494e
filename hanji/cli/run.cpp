#include <CLI/CLI.hpp>
#include <iostream>

#include "hanji/cli/exit_code.h"
#include "hanji/cli/tell.h"
#include "hanji/cli/verbs.h"
#include "hanji/launch/run.h"

namespace hanji::cli {

void add_run(CLI::App& app, Run& run) {
  CLI::App* verb = app.add_subcommand("run", "Start any program as ranks of this host");
  auto options = std::make_shared<launch::RunOptions>();
  auto logs = std::make_shared<std::string>();
  verb->add_option("-n,--ranks", options->ranks, "processes; default: one per physical core")
      ->type_name("N");
  verb->add_option("--max-restarts", options->max_restarts,
                   "start all ranks again when one fails, at most so often; default: 0")
      ->type_name("N");
  verb->add_option("--logs", *logs, "folder for one log per rank; default: the terminal")
      ->type_name("DIR");
  verb->add_option("command", options->command, "program and its arguments")->required();
  verb->positionals_at_end();
  verb->callback([=, &run] {
    run = [=] {
      options->log_directory = *logs;
      options->on_event = tell;
      const auto outcome = launch::run_program(*options);
      if (outcome.ok()) return outcome->exit_code;
      std::cerr << "hanji: " << outcome.status().message() << "\n";
      return exit_code(outcome.status().code());
    };
  });
}

}  // namespace hanji::cli
