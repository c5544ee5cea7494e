#include <iostream>

#include "hanji/cli/exit_code.h"
#include "hanji/cli/verbs.h"
#include "hanji/train/rank.h"

namespace hanji::cli {

void add_rank(Verb command) {
  const Verb verb = command.add_verb("rank", "");
  auto options = std::make_shared<train::RankOptions>();
  auto out = std::make_shared<std::string>();
  verb.add_option("--out", out.get()).required();
  verb.add_option("--started-ns", &options->started_ns).required();
  auto resume_from = std::make_shared<std::string>();
  verb.add_option("--resume-from", resume_from.get());
  auto terminal_columns = std::make_shared<int>(0);
  verb.add_option("--terminal", terminal_columns.get());
  verb.on_chosen([=] {
    options->out = *out;
    options->resume_from = *resume_from;
    options->output.overwrites = *terminal_columns > 0;
    if (*terminal_columns > 0) options->output.columns = *terminal_columns;
    options->output.write = [](std::string_view text) { std::cout << text << std::flush; };
    return stop_code(train::run_rank(*options).stop_signal);
  });
}

}  // namespace hanji::cli
