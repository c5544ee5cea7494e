#include <CLI/CLI.hpp>
#include <iostream>

#include "hanji/cli/exit_code.h"
#include "hanji/cli/verbs.h"
#include "hanji/train/rank.h"

namespace hanji::cli {

void add_rank(CLI::App& app, Run& run) {
  CLI::App* verb = app.add_subcommand("rank", "")->group("");
  auto options = std::make_shared<train::RankOptions>();
  auto out = std::make_shared<std::string>();
  verb->add_option("--out", *out)->required();
  verb->add_option("--started-ns", options->started_ns)->required();
  auto resume_from = std::make_shared<std::string>();
  verb->add_option("--resume-from", *resume_from);
  verb->add_flag("--terminal", options->output.overwrites);
  verb->callback([=, &run] {
    run = [=] {
      options->out = *out;
      options->resume_from = *resume_from;
      options->output.write = [](std::string_view text) { std::cout << text << std::flush; };
      return stop_code(train::run_rank(*options).stop_signal);
    };
  });
}

}  // namespace hanji::cli
